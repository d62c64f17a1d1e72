"""Who may do what with a bucket of the loopback server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from services.gcs.messages import Request
from services.gcs.objects import Refused

#: Operations that change nothing.
READS = ("bucket", "list", "metadata", "download")


@dataclass(frozen=True)
class Rule:
    """What a bucket asks of a request.

    Attributes:
        unsigned: what callers without a token may do: "all", as on an emulator, "read" or "none".
        requester_pays: a project to bill must be named.
        callers: whose tokens are taken; None for all.
        policies: what the bucket says of itself, such as its softDeletePolicy.
    """

    unsigned: str = "all"
    requester_pays: bool = False
    callers: list[str] | None = None
    policies: dict[str, Any] = field(default_factory=dict)

    def refusal(self, request: Request, operation: str) -> Refused | None:
        """Why a request is refused; None where it is granted.  In the words of the service."""
        caller = request.caller()
        may = f"storage.objects.{'get' if operation in READS else 'create'}"
        if not caller and self.unsigned != "all":
            if self.unsigned == "none" or operation not in READS:
                return Refused(401, "required", f"Anonymous caller {_lacks(may)}")
        elif self.callers is not None and caller not in self.callers:
            return Refused(403, "forbidden", f"{caller} {_lacks(may)}")
        billed = request.query.get("userProject") or request.headers.get("x-goog-user-project")
        if self.requester_pays and not billed:
            words = "Bucket is a requester pays bucket but no user project provided."
            return Refused(400, "required", words)
        return None


def _lacks(permission: str) -> str:
    return (
        f"does not have {permission} access to the Google Cloud Storage object. Permission "
        f"'{permission}' denied on resource (or it may not exist)."
    )
