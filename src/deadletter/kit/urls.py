"""URLs of servers, read with the options of a Struct."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Generic, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

import msgspec
from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.core.redact import unreadable

from .tls import check_files

OptionsT = TypeVar("OptionsT", bound=Struct)


class NoOptions(Struct, frozen=True):
    """Parameters of URLs that have none."""


class Host(Struct, frozen=True):
    """One server that a URL names."""

    name: str
    port: int | None = None

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name else self.name
        return name if self.port is None else f"{name}:{self.port}"


class ServerUrl(Struct, Generic[OptionsT], frozen=True, kw_only=True):
    """A URL that was read; user, password and path are decoded."""

    scheme: str
    hosts: tuple[Host, ...]
    user: str | None
    password: str | None
    path: str
    options: OptionsT
    client_options: dict[str, str]  # for the client library, by its own names
    client_url: str  # for the client library: the URL without our options
    is_tls: bool

    @property
    def where(self) -> str:
        """The servers or the socket, without user and password, for people."""
        return ", ".join(map(str, self.hosts)) or self.path

    @property
    def host(self) -> Host:
        """The only server."""
        return self.hosts[0]


class UrlForm(Generic[OptionsT]):
    """The form of one backend's URLs: schemes, usual ports, options."""

    def __init__(
        self,
        service: str,
        ports: Mapping[str, int | None],
        options: type[OptionsT],
        *,
        example: str,
        tls_schemes: Sequence[str] = (),
        tls_options: Sequence[str] = (),
        socket_schemes: Sequence[str] = (),
        many_hosts: bool = False,
        default_host: str | None = "localhost",
        is_client_option: Callable[[str], bool] = lambda _: False,
        client_files: Sequence[str] = (),
        client_names: Sequence[str] = (),
    ) -> None:
        """
        Describe URLs.

        `ports` has the usual port of every scheme; None means that there is none.
        `options` is a Struct with the names, types, defaults and limits (`msgspec.Meta`)
        of the query's parameters. `tls_options` are those that need one of `tls_schemes`;
        they name files. URLs with one of `socket_schemes` name a socket instead of a host.
        `is_client_option` accepts names that belong to the client library. Those in
        `client_files` name files; `client_names` are suggested for misspelled names.
        Without a `default_host`, a URL may name no host.
        """
        self.service = service
        self.ports = ports
        self.options = options
        self.example = example
        self._tls_schemes = tls_schemes
        self._tls_options = tls_options
        self._socket_schemes = socket_schemes
        self._many_hosts = many_hosts
        self._default_host = default_host
        self._is_client_option = is_client_option
        self._client_files = client_files
        self._client_names = client_names

    def read(self, url: str) -> ServerUrl[OptionsT]:
        """Read a URL; ConfigError says what to change, without user or password."""
        try:
            parts = urlsplit(url)
            given = parse_qsl(parts.query, keep_blank_values=True)
            self._check_escapes(parts, given)
            hosts = self._hosts(parts)
        except ValueError as error:
            raise unreadable(self.service) from error
        if parts.scheme not in self.ports:
            known = " or ".join(f"{scheme}://" for scheme in self.ports)
            raise ConfigError(f"{self.service} URLs begin with {known}, as in {self.example}")
        if parts.scheme in self._socket_schemes and (hosts or not parts.path.strip("/")):
            raise ConfigError(
                f"a {parts.scheme} URL names a socket, as in"
                f" {parts.scheme}:///run/{self.service.lower()}.sock"
            )
        if len(hosts) > 1 and not self._many_hosts:
            raise ConfigError(f"{self.service} URLs name one host, as in {self.example}")
        theirs = [(name, value) for name, value in given if self._is_client_option(name)]
        client = dict(theirs)
        ours = {name: value for name, value in given if name not in client}
        options = self.read_options(parts.scheme, ours)
        check_files(self.service, {n: client[n] for n in self._client_files if client.get(n)})
        user, has_password, password = parts.netloc.rpartition("@")[0].partition(":")
        return ServerUrl(
            scheme=parts.scheme,
            hosts=hosts,
            user=unquote(user) or None,
            password=unquote(password) if has_password else None,
            path=unquote(parts.path),
            options=options,
            client_options=client,
            client_url=parts._replace(query=urlencode(theirs)).geturl(),
            is_tls=parts.scheme in self._tls_schemes,
        )

    def _check_escapes(self, parts: SplitResult, given: Iterable[tuple[str, str]]) -> None:
        """Raise ValueError if a password with / ? or # seems to have cut the URL short."""
        beyond = [parts.path, parts.fragment, *(name for name, _ in given)]
        if parts.fragment or ("@" not in parts.netloc and any("@" in one for one in beyond)):
            raise ValueError("a character of the password is not escaped")

    def _hosts(self, parts: SplitResult) -> tuple[Host, ...]:
        port = self.ports.get(parts.scheme)
        named = [one for one in parts.netloc.rpartition("@")[2].split(",") if one]
        if parts.scheme in self._socket_schemes and not named:
            return ()
        if not named and self._default_host is not None:
            return (Host(self._default_host, port),)
        hosts = []
        for one in named:
            split = urlsplit(f"//{one}")
            if split.port == 0:
                raise ValueError("port 0")
            name = split.hostname or self._default_host
            if not name:
                raise ValueError("a port without a host")
            hosts.append(Host(name, split.port or port))
        return tuple(hosts)

    def read_options(self, scheme: str, given: Mapping[str, str]) -> OptionsT:
        """Read the parameters of a query; ConfigError says what to change."""
        fields = {field.encode_name: field for field in _fields(self.options)}
        for name in given:
            if name not in fields:
                raise ConfigError(self._unknown(name, fields))
        is_tls = scheme in self._tls_schemes
        files = {name: given[name] for name in self._tls_options if name in given}
        if files and not is_tls:
            raise ConfigError(
                f"{min(files)} in the {self.service} URL needs TLS: begin the URL with"
                f" {self._tls_schemes[0]}://"
            )
        for name, value in given.items():
            try:
                msgspec.convert({name: value}, self.options, strict=False)
            except msgspec.ValidationError as error:
                expected = _expected(fields[name].type)
                raise ConfigError(
                    f"{name} in the {self.service} URL must be {expected}, got"
                    f" {value.rpartition('@')[2][:60]!a}"
                ) from error
        check_files(self.service, files)
        return msgspec.convert(given, self.options, strict=False)

    def _unknown(self, name: str, fields: Iterable[str]) -> str:
        known = [one for one in fields if one not in self._tls_options]
        near = _nearest(name, [*fields, *self._client_names])
        meant = f" (did you mean {near[0]!a}?)" if near else ""
        more = ""
        if self._tls_options:
            more = f"; with {self._tls_schemes[0]}:// also {', '.join(self._tls_options)}"
        return (
            f"unknown parameter {name!a} in the {self.service} URL{meant};"
            f" known are: {', '.join(known) or 'none'}{more}"
        )


def _fields(options: type[Struct]) -> tuple[msgspec.inspect.Field, ...]:
    info = msgspec.inspect.type_info(options)
    assert isinstance(info, msgspec.inspect.StructType)
    return info.fields


def _expected(kind: msgspec.inspect.Type) -> str:
    """Describe the values of an option for people."""
    match kind:
        case msgspec.inspect.UnionType(types=types):
            return _expected(types[0])
        case msgspec.inspect.Metadata(type=inner, extra_json_schema=schema):
            return (schema or {}).get("description") or _expected(inner)
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.LiteralType(values=values):
            return " or ".join(map(str, values))
        case msgspec.inspect.IntType(ge=low, le=high):
            if low is not None and high is not None:
                return f"a number from {low} to {high}"
            return "a number" if low is None else f"a number, at least {low}"
    return "a text"


def near_names(name: str, known: Iterable[str]) -> str:
    """Return a sentence that asks whether one of the known names was meant, or ""."""
    near = _nearest(name, known)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def _nearest(name: str, known: Iterable[str]) -> list[str]:
    lower = {one.lower(): one for one in known}
    return [lower[one] for one in get_close_matches(name.lower(), lower, 3)]
