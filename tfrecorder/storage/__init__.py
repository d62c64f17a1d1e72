"""Files by path or uri: everything this package reads or writes goes through here.

These are the names that the rest of the package uses: `storage.read_bytes` and so on.
"""

from tfrecorder.storage.beside import (
    LFS_POINTER,
    LFS_WORDS,
    Beside,
    Near,
    hint_beside,
    is_lfs_pointer,
)
from tfrecorder.storage.connections import (
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
    FoldersRead,
    describe,
    descriptions,
    each,
    exists,
    failing_as,
    files_below,
    is_folder,
    is_unsigned,
    local_copy,
    names,
    open_seekable,
    read_bytes,
    read_source,
    read_versioned,
    refusal,
    size,
    size_or_none,
    sizes,
    sums,
    version,
)
from tfrecorder.storage.local import check_locale, failing_writes
from tfrecorder.storage.retry import impatient, retried, waits
from tfrecorder.storage.store import (
    OF_THE_READER,
    Described,
    Description,
    Descriptions,
    OtherStandsError,
    UnreadableError,
    unless_missing,
)
from tfrecorder.storage.uris import (
    CHANGED,
    WEB,
    absolute,
    given_path,
    is_local,
    is_web,
    parent,
    put_aside,
    resolve,
    scheme,
    unsigned,
)
from tfrecorder.storage.writing import (
    keeps_removed,
    link,
    move,
    move_all,
    overwrite,
    publish,
    publish_all,
    publish_by,
    publish_bytes,
    publish_new,
    publish_over,
    remove,
    remove_files,
    remove_possible,
    replaces_conditionally,
    sync,
    write_all,
)
