"""Who may do what with a bucket of the loopback server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from services.gcs.faults import matches
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
        retained: the end of its retention policy's period, until which no object may go.
        held: a pattern of the names of objects under a hold.
        deletes: callers may delete and replace objects, not only create them.
        policies: what the bucket says of itself, such as its softDeletePolicy.
    """

    unsigned: str = "all"
    requester_pays: bool = False
    callers: list[str] | None = None
    retained: str = ""
    held: str = ""
    deletes: bool = True
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

    def refuse_kept(self, bucket: str, name: str) -> None:
        """Refuse that an object that stands goes, deleted or replaced.  In the service's words."""
        kept = f"Object '{bucket}/{name}' is"
        if self.retained:
            words = "subject to bucket's retention policy or object retention and cannot be deleted"
            words = f"{kept} {words} or overwritten until {self.retained}"
            raise Refused(403, "retentionPolicyNotMet", words)
        if matches(name, self.held):
            words = "under active Temporary hold and cannot be deleted, overwritten or archived"
            words = f"{kept} {words} until hold is removed."
            raise Refused(403, "objectUnderActiveHold", words)
        if not self.deletes:
            raise Refused(403, "forbidden", f"loopback {_lacks('storage.objects.delete')}")


def _lacks(permission: str) -> str:
    return (
        f"does not have {permission} access to the Google Cloud Storage object. Permission "
        f"'{permission}' denied on resource (or it may not exist)."
    )
