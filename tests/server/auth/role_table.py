"""Every route of the server and the least role that may use it; None: anybody."""

from typing import Final

from deadletter.core.access import Role
from deadletter.office.verbs import VERBS

READER, OPERATOR, ADMIN = Role.READER, Role.OPERATOR, Role.ADMIN
FOR_ADMINS: Final = {"purge"}  # verbs of letters; all others are for operators

TABLE: Final[dict[tuple[str, str], Role | None]] = {
    # letters
    ("GET", "/api/v1/letters"): READER,
    ("GET", "/api/v1/letters/count"): READER,
    ("GET", "/api/v1/letters/{id}"): READER,
    ("PATCH", "/api/v1/letters/{id}"): OPERATOR,
    ("GET", "/api/v1/letters/facets"): READER,
    ("GET", "/api/v1/letters/{id}/nearby"): READER,
    ("GET", "/api/v1/letters/{id}/contents"): READER,
    ("GET", "/api/v1/letters/{id}/contents/revealed"): OPERATOR,
    ("GET", "/api/v1/letters/{id}/timeline"): READER,
    ("GET", "/api/v1/letters/{id}/diff"): READER,
    ("GET", "/api/v1/letters/{id}/message"): OPERATOR,
    ("GET", "/api/v1/letters/{id}/body"): OPERATOR,
    ("GET", "/api/v1/letters/{id}/original"): OPERATOR,
    ("POST", "/api/v1/letters/{id}/notes"): OPERATOR,
    ("POST", "/api/v1/letters/notes"): OPERATOR,
    **{
        ("POST", path): ADMIN if verb.name in FOR_ADMINS else OPERATOR
        for verb in VERBS
        for path in (f"/api/v1/letters/{{id}}/{verb.name}", f"/api/v1/letters/{verb.name}")
    },
    # groups
    ("GET", "/api/v1/groups"): READER,
    ("GET", "/api/v1/groups/counts"): READER,
    ("GET", "/api/v1/groups/{name}"): READER,
    ("GET", "/api/v1/groups/{name}/variants"): READER,
    ("GET", "/api/v1/groups/{name}/common"): READER,
    ("PUT", "/api/v1/groups/{name}/standing"): OPERATOR,
    ("GET", "/api/v1/group-rules"): READER,
    ("POST", "/api/v1/groups/{name}/merge"): OPERATOR,
    ("POST", "/api/v1/groups/{name}/split"): OPERATOR,
    ("POST", "/api/v1/groups/{name}/undo"): OPERATOR,
    # replays
    ("GET", "/api/v1/replays"): READER,
    ("POST", "/api/v1/replays"): OPERATOR,
    ("POST", "/api/v1/replays/plan"): OPERATOR,
    ("POST", "/api/v1/replays/verdicts"): OPERATOR,
    ("GET", "/api/v1/replays/{name}"): READER,
    ("GET", "/api/v1/replays/{name}/report"): READER,
    ("GET", "/api/v1/replays/{name}/verdicts"): READER,
    ("POST", "/api/v1/replays/{name}/start"): OPERATOR,
    ("POST", "/api/v1/replays/{name}/pause"): OPERATOR,
    ("POST", "/api/v1/replays/{name}/resume"): OPERATOR,
    ("POST", "/api/v1/replays/{name}/cancel"): OPERATOR,
    ("POST", "/api/v1/confirmations"): OPERATOR,
    ("POST", "/admin/dlq/{node_id}/replay"): OPERATOR,
    # mailboxes
    ("GET", "/api/v1/queues"): READER,
    ("POST", "/api/v1/queues"): ADMIN,
    ("GET", "/api/v1/queues/{name}"): READER,
    ("PATCH", "/api/v1/queues/{name}"): ADMIN,
    ("DELETE", "/api/v1/queues/{name}"): ADMIN,
    # workers
    ("GET", "/api/v1/workers"): READER,
    # intakes
    ("GET", "/api/v1/intakes"): READER,
    ("POST", "/api/v1/intakes/{name}/look"): OPERATOR,
    ("POST", "/api/v1/intakes/{name}/take"): OPERATOR,
    ("POST", "/api/v1/intakes/{name}/follow"): OPERATOR,
    ("POST", "/api/v1/intakes/{name}/stop"): OPERATOR,
    # outages
    ("GET", "/api/v1/outages"): READER,
    ("POST", "/api/v1/outages/release"): OPERATOR,
    # deaths over time
    ("GET", "/api/v1/deaths"): READER,
    ("GET", "/api/v1/marks"): READER,
    # the office as a whole
    ("GET", "/api/v1/search/suggest"): READER,
    ("GET", "/api/v1/needs"): READER,
    ("GET", "/api/v1/report"): READER,
    ("GET", "/api/v1/audit"): READER,
    ("GET", "/api/v1/audit/latest"): READER,
    ("GET", "/api/v1/stats"): READER,
    ("GET", "/api/v1/events"): READER,
    ("GET", "/api/v1/export"): OPERATOR,
    ("POST", "/api/v1/import"): ADMIN,
    # access
    ("POST", "/api/v1/session"): None,
    ("GET", "/api/v1/session"): READER,
    ("DELETE", "/api/v1/session"): READER,
    ("GET", "/api/v1/tokens"): ADMIN,
    ("POST", "/api/v1/tokens"): ADMIN,
    ("DELETE", "/api/v1/tokens/{id}"): ADMIN,
    # the console
    ("GET", "/"): READER,
    ("GET", "/sign-in"): None,
    ("POST", "/sign-in"): None,
    ("POST", "/sign-out"): READER,
    ("POST", "/undo/{key}"): OPERATOR,
    # console: groups
    # console: letters
    # console: letter
    # console: replays
    # console: overview, audit, report
    # console: mailboxes, lent queues, intake
    ("GET", "/queues"): READER,
    ("GET", "/queues/{name}"): READER,
    ("GET", "/queue/dialog"): OPERATOR,
    ("POST", "/queue/create"): ADMIN,
    ("POST", "/queue/change"): ADMIN,
    ("POST", "/queue/delete"): ADMIN,
    ("POST", "/queue/release"): OPERATOR,
    ("GET", "/lent"): READER,
    ("GET", "/lent/{name}"): READER,
    ("GET", "/lent-queue/dialog"): OPERATOR,
    ("POST", "/lent-queue/create"): ADMIN,
    ("POST", "/lent-queue/change"): ADMIN,
    ("POST", "/lent-queue/delete"): ADMIN,
    ("POST", "/lent-queue/clear"): ADMIN,
    ("POST", "/lent-queue/items"): ADMIN,
    ("POST", "/lent-queue/produce"): OPERATOR,
    ("GET", "/intake"): READER,
    ("GET", "/intake/{name}/dialog"): OPERATOR,
    ("POST", "/intake/{name}/look"): OPERATOR,
    ("POST", "/intake/{name}/take"): OPERATOR,
    ("POST", "/intake/{name}/follow"): OPERATOR,
    ("POST", "/intake/{name}/stop"): OPERATOR,
    # console: access, system
    ("GET", "/static/{digest}/{name}"): None,
    # the queue server
    ("POST", "/v1/queue.produce"): OPERATOR,
    ("POST", "/v1/queue.lease"): OPERATOR,
    ("POST", "/v1/queue.complete"): OPERATOR,
    ("POST", "/v1/queue.retry"): OPERATOR,
    ("POST", "/v1/queue.stats"): READER,
    ("POST", "/v1/queue.clear"): ADMIN,
    ("POST", "/v1/queue.reload"): ADMIN,
    ("POST", "/v1/queues.create"): ADMIN,
    ("POST", "/v1/queues.update"): ADMIN,
    ("POST", "/v1/queues.delete"): ADMIN,
    ("POST", "/v1/queues.list"): READER,
    ("POST", "/v1/queues.info"): READER,
    ("POST", "/v1/storage/items.list"): ADMIN,
    ("POST", "/v1/storage/items.import"): ADMIN,
    ("POST", "/v1/storage/items.delete"): ADMIN,
    ("POST", "/v1/storage/scheduled.list"): ADMIN,
    # description, health and metrics
    ("GET", "/api/openapi.json"): None,
    ("GET", "/health"): None,
    ("GET", "/health/live"): None,
    ("GET", "/health/ready"): None,
    ("GET", "/metrics"): None,  # checked in the route, unless `serve.metrics` is open
}
