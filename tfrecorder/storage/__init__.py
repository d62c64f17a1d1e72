"""Files by path or uri: everything this package reads or writes goes through here.

These are the names that the rest of the package uses: `storage.read_bytes` and so on.
"""

from tfrecorder.storage.credentials import (
    NO_CREDENTIALS,
    USER_PROJECT,
    Access,
    access,
    accessing,
    acting_as,
    find_credentials,
)
from tfrecorder.storage.files import (
    REMOTE_THREADS,
    describe,
    descriptions,
    each,
    exists,
    failing_as,
    files_below,
    is_folder,
    link,
    local_copy,
    move,
    names,
    open_seekable,
    overwrite,
    publish,
    publish_by,
    publish_bytes,
    publish_new,
    publish_over,
    read_bytes,
    read_source,
    read_versioned,
    remove,
    remove_all,
    replaces_conditionally,
    size,
    size_or_none,
    sizes,
    sums,
    sync,
    version,
    write_all,
)
from tfrecorder.storage.known_folders import KnownFolders
from tfrecorder.storage.local import check_locale
from tfrecorder.storage.retry import impatient, retried
from tfrecorder.storage.services import waits
from tfrecorder.storage.store import (
    OF_THE_READER,
    Description,
    OtherStandsError,
    UnreadableError,
    UnwritableError,
)
from tfrecorder.storage.stores import is_unsigned, refusal
from tfrecorder.storage.uris import (
    absolute,
    backslash_hint,
    given_path,
    is_local,
    parent,
    resolve,
    scheme,
)
