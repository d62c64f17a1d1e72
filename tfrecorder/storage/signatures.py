"""Signed uris: who has one may read the file, so a signature is kept in memory alone.

What names the image everywhere else is the uri without it, which stays the same when it is signed
again.
"""

from __future__ import annotations

from tfrecorder.storage.credentials import access
from tfrecorder.storage.uris import is_web

#: What every uri with a signature has, as a regular expression.
SIGNED = r"(?is)^\s*https?://.*[?&](amp;)?(x-amz-|x-goog-|sig=|signature=)"

#: Each parameter with a signature; those of which one stands beside it if it is one of Azure's, or
#: of a CDN and the older ones of Amazon and Google; and the others that go with it then.
#: Sources: https://learn.microsoft.com/rest/api/storageservices/create-user-delegation-sas and
#: https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/private-content-signed-urls.html
_FORMS = (
    (
        "sig",
        "se si",
        "sv ss srt sp st sip spr sr sdd ses skoid sktid skt ske sks skv skdutid sduoid",
    ),
    ("sig", "se si", "saoid suoid scid rscc rscd rsce rscl rsct"),
    ("signature", "expires policy key-pair-id keyname", "hash-algorithm urlprefix"),
    ("signature", "awsaccesskeyid googleaccessid ossaccesskeyid", "expires"),
)


def unsigned(uri: str) -> str:
    """A uri on the web without the parameters of a signature; any other as it is.

    >>> unsigned("https://h/a?id=7&X-Amz-Date=1&X-Amz-Signature=2"), unsigned("https://h/a?sig=7")
    ('https://h/a?id=7', 'https://h/a?sig=7')
    """
    whole, mark, fragment = uri.partition("#")
    place, _, query = whole.partition("?")
    if not (query and is_web(uri.lstrip())):
        return uri
    parts = query.split("&")  # of which an "&" that comes from HTML leaves "amp;" behind
    named = [(part.partition("=")[0].lower().removeprefix("amp;"), part) for part in parts]
    names = {name for name, _ in named}
    gone = {name for name in names if name.startswith(("x-amz-", "x-goog-"))}
    for name, beside, others in _FORMS:
        if name in names and not names.isdisjoint(beside.split()):
            gone |= {name, *beside.split(), *others.split()}
    kept = "&".join(part for name, part in named if name not in gone)
    return f"{place}{'?' if kept else ''}{kept}{mark}{fragment}"


def put_aside(uri: str) -> str:
    """`unsigned`; within a block of `accessing`, the file is read with the signature."""
    plain = unsigned(uri)
    if plain != uri:
        access().signed[plain] = uri
    return plain
