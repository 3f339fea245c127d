package sidecar

import (
	"context"

	"golang.org/x/sys/unix"

	"tine/sidecar/isolate"
	"tine/sidecar/record"
	"tine/snapshot"
	"tine/snapshot/content"
	"tine/snapshot/durable"
	"tine/snapshot/gitimport"
	"tine/snapshot/gitimport/objects"
	"tine/snapshot/image"
	"tine/snapshot/pin"
)

// conditions is the table of all errors that callers can meet. What says most about a failure stands first: an error
// may wrap several. Errnos stand last.
var conditions = []condition{
	{"sidecar.RequestError", typed[*RequestError](), Usage, "usage", "", "the request makes no sense; the message on standard error says why"},
	{"gitimport.RequestError", typed[*gitimport.RequestError](), Usage, "usage", "", "the import's options contradict each other or the repository"},
	{"isolate.SpecError", typed[*isolate.SpecError](), Usage, "usage", "", "the run's options make no sense"},

	{"sidecar.AmbiguousError", typed[*AmbiguousError](), Failed, "ambiguous", "", "the shortened id stands for several things"},
	{"snapshot.AmbiguousError", typed[*snapshot.AmbiguousError](), Failed, "ambiguous", "", "the shortened id stands for several checkpoints"},
	{"sidecar.ErrNotFound", sentinel(ErrNotFound), Failed, "not_found", "", "nothing has that id or name"},
	{"snapshot.ErrNotFound", sentinel(snapshot.ErrNotFound), Failed, "not_found", "", "no checkpoint has that id or name"},
	{"record.ErrNotFound", sentinel(record.ErrNotFound), Failed, "not_found", "", "no run has that id or name"},
	{"pin.ErrNotFound", sentinel(pin.ErrNotFound), Failed, "not_found", "", "no such pin"},
	{"snapshot.NameTakenError", typed[*snapshot.NameTakenError](), Refused, "name_taken", "names", "the name is taken; --force moves it"},

	{"snapshot.ErrNoStore", sentinel(snapshot.ErrNoStore), Failed, "no_store", "", "there is no store yet; the first import makes it"},
	{"snapshot.VersionError", typed[*snapshot.VersionError](), Refused, "version", "format", "the store was written by another version of tine"},
	{"image.VersionError", typed[*image.VersionError](), Refused, "version", "format", "a tree image was written by another version of tine"},
	{"snapshot.CollisionError", typed[*snapshot.CollisionError](), Refused, "collision", "content", "two contents have one id: a hash collision"},
	{"snapshot.ManifestError", typed[*snapshot.ManifestError](), Failed, "damaged", "", "a checkpoint's manifest is damaged; see tine fsck"},
	{"image.CorruptError", typed[*image.CorruptError](), Failed, "damaged", "", "a tree image is damaged; see tine fsck"},

	{"gitimport.NotRepositoryError", typed[*gitimport.NotRepositoryError](), Failed, "not_a_repository", "", "not a git repository"},
	{"gitimport.EmptyError", typed[*gitimport.EmptyError](), Failed, "empty_repository", "", "the repository has no commit yet"},
	{"gitimport.RevisionError", typed[*gitimport.RevisionError](), Failed, "unknown_revision", "", "the repository has no such revision"},
	{"gitimport.FormatError", typed[*gitimport.FormatError](), Refused, "unsupported_repository", "import", "the repository is of a kind that can't be read, such as SHA-256"},
	{"gitimport.PathError", typed[*gitimport.PathError](), Refused, "unsupported_path", "import", "the commit has a path that can't be in a workspace"},
	{"gitimport.MissingObjectError", typed[*gitimport.MissingObjectError](), Failed, "missing_objects", "", "the repository lacks objects that the commit reaches: a partial, shallow or damaged clone"},
	{"gitimport.CorruptError", typed[*gitimport.CorruptError](), Failed, "corrupt_repository", "", "the repository has damaged objects"},
	{"objects.CorruptError", typed[*objects.CorruptError](), Failed, "corrupt_repository", "", "the repository has damaged objects"},
	{"objects.ErrNotFound", sentinel(objects.ErrNotFound), Failed, "missing_objects", "", "the repository lacks an object"},

	{"content.CorruptError", typed[*content.CorruptError](), Failed, "damaged", "", "a content is not what its id says; see tine fsck"},
	{"content.MissingError", typed[*content.MissingError](), Failed, "missing_content", "", "a content is in no source; is the repository that it came from gone?"},

	{"isolate.UnsupportedError", typed[*isolate.UnsupportedError](), Refused, "unsupported", "isolation", "this host can't enforce what was asked for"},
	{"isolate.StartError", typed[*isolate.StartError](), Failed, "not_started", "", "the program could not be started"},
	{"isolate.SetupError", typed[*isolate.SetupError](), Failed, "isolation_failed", "", "the isolation could not be set up"},
	{"isolate.ErrEnded", sentinel(isolate.ErrEnded), Failed, "ended", "", "the program has ended"},
	{"durable.LockedError", typed[*durable.LockedError](), Failed, "locked", "", "another process has the lock"},
	{"sidecar.ErrControl", sentinel(ErrControl), Failed, "control", "", "the process that serves the fork did not answer as it should"},
	{"snapshot.ErrNoHold", sentinel(snapshot.ErrNoHold), Failed, "internal", "", "a mistake in tine: storing without a hold"},

	{"context.Canceled", sentinel(context.Canceled), Failed, "interrupted", "", "interrupted"},
	{"context.DeadlineExceeded", sentinel(context.DeadlineExceeded), Failed, "deadline", "", "the deadline passed"},
	{"unix.ENOSPC", sentinel(unix.ENOSPC), Failed, "no_space", "", "no space is left where the store lies"},
	{"unix.EDQUOT", sentinel(unix.EDQUOT), Failed, "no_space", "", "a limit on space is reached"},
	{"snapshot.ErrReadOnly", sentinel(snapshot.ErrReadOnly), Failed, "read_only", "", "the store is read-only, or has become so by a failed sync"},
	{"unix.EROFS", sentinel(unix.EROFS), Failed, "read_only", "", "the file system is read-only"},
	{"unix.EACCES", sentinel(unix.EACCES), Failed, "permission", "", "permission denied"},
	{"unix.EPERM", sentinel(unix.EPERM), Failed, "permission", "", "operation not permitted"},
	{"unix.EIO", sentinel(unix.EIO), Failed, "io", "", "something could not be read or written"},
	{"image.ErrNotExist", sentinel(image.ErrNotExist), Failed, "no_such_file", "", "no such file in the checkpoint"},
	{"image.ErrClosed", sentinel(image.ErrClosed), Failed, "internal", "", "a mistake in tine: a closed image was used"},
	{"unix.ENOENT", sentinel(unix.ENOENT), Failed, "no_such_file", "", "no such file or directory"},
	{"unix.ENOTDIR", sentinel(unix.ENOTDIR), Failed, "not_a_directory", "", "not a directory"},
	{"unix.EEXIST", sentinel(unix.EEXIST), Failed, "exists", "", "a file is in the way"},
}
