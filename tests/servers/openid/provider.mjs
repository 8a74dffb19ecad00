// A provider with its own pages for signing in. Its keys are new with each start.
import { generateKeyPairSync, randomUUID } from "node:crypto";
import { pathToFileURL } from "node:url";

const told = JSON.parse(process.argv[2]);
const home = pathToFileURL(`${process.env.OPENID_HOME}/node_modules/oidc-provider/lib/index.js`);
const { Provider } = await import(home);

const key = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey.export({ format: "jwk" });

const provider = new Provider(told.issuer, {
  clients: told.clients,
  jwks: { keys: [{ ...key, kid: randomUUID(), use: "sig", alg: "RS256" }] },
  cookies: { keys: ["only for tests"] },
  pkce: { required: () => true },
  claims: {
    openid: ["sub"],
    email: ["email", "email_verified"],
    profile: ["name", "groups", "mailboxes"],
  },
  // Without it, claims of scopes are in the answer of the userinfo endpoint only.
  conformIdTokenClaims: told.thin,
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, ...(told.accounts[id] ?? {}) }),
  }),
  features: { devInteractions: { enabled: true } },
});
provider.listen(told.port, "127.0.0.1");
