package sidecar

import (
	"context"

	"golang.org/x/sys/unix"

	"tine/fs"
	"tine/overlay"
	"tine/overlay/journal"
	"tine/overlay/registry"
	"tine/sidecar/isolate"
	"tine/sidecar/record"
	"tine/snapshot"
	"tine/snapshot/content"
	"tine/snapshot/dirimport"
	"tine/snapshot/durable"
	"tine/snapshot/gitimport"
	"tine/snapshot/gitimport/objects"
	"tine/snapshot/glob"
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

	{"registry.NameTakenError", typed[*registry.NameTakenError](), Refused, "name_taken", "names", "the name is taken by another fork; --force moves it"},
	{"registry.NotFoundError", typed[*registry.NotFoundError](), Failed, "not_found", "", "no fork has that id or name"},
	{"registry.AmbiguousError", typed[*registry.AmbiguousError](), Failed, "ambiguous", "", "the shortened id stands for several forks"},
	{"registry.CorruptError", typed[*registry.CorruptError](), Failed, "damaged", "", "the list of forks is damaged; see tine fsck"},
	{"overlay.ServedError", typed[*overlay.ServedError](), Refused, "served", "serving", "another process serves the fork"},

	{"snapshot.ErrNoStore", sentinel(snapshot.ErrNoStore), Failed, "no_store", "", "there is no store yet; the first import makes it"},
	{"snapshot.VersionError", typed[*snapshot.VersionError](), Refused, "version", "format", "the store was written by another version of tine"},
	{"image.VersionError", typed[*image.VersionError](), Refused, "version", "format", "a tree image was written by another version of tine"},
	{"snapshot.CollisionError", typed[*snapshot.CollisionError](), Refused, "collision", "content", "two contents have one id: a hash collision"},
	{"snapshot.ManifestError", typed[*snapshot.ManifestError](), Failed, "damaged", "", "a checkpoint's manifest is damaged; see tine fsck"},
	{"image.CorruptError", typed[*image.CorruptError](), Failed, "damaged", "", "a tree image is damaged; see tine fsck"},

	{"snapshot.SourcesGoneError", typed[*snapshot.SourcesGoneError](), Failed, "source_gone", "", "the repository that contents come from is gone; put it back where it was, or import again from where it is now"},
	{"gitimport.NotRepositoryError", typed[*gitimport.NotRepositoryError](), Failed, "not_a_repository", "", "not a git repository"},
	{"gitimport.EmptyError", typed[*gitimport.EmptyError](), Failed, "empty_repository", "", "the repository has no commit yet"},
	{"gitimport.RevisionError", typed[*gitimport.RevisionError](), Failed, "unknown_revision", "", "the repository has no such revision"},
	{"gitimport.FormatError", typed[*gitimport.FormatError](), Refused, "unsupported_repository", "import", "the repository is of a kind that can't be read, such as SHA-256"},
	{"gitimport.PathError", typed[*gitimport.PathError](), Refused, "unsupported_path", "import", "the commit has a path that can't be in a workspace"},
	{"gitimport.MissingObjectError", typed[*gitimport.MissingObjectError](), Failed, "missing_objects", "", "the repository lacks objects that the commit reaches: a partial, shallow or damaged clone"},
	{"gitimport.CorruptError", typed[*gitimport.CorruptError](), Failed, "corrupt_repository", "", "the repository has damaged objects"},
	{"objects.CorruptError", typed[*objects.CorruptError](), Failed, "corrupt_repository", "", "the repository has damaged objects"},
	{"objects.TooLargeError", typed[*objects.TooLargeError](), Refused, "file_too_large", "import", "a file of the repository's own is larger than any that git writes"},
	{"objects.NotRegularError", typed[*objects.NotRegularError](), Refused, "not_regular", "import", "a file of the repository's own is not a regular file"},
	{"objects.ErrNotFound", sentinel(objects.ErrNotFound), Failed, "missing_objects", "", "the repository lacks an object"},

	{"dirimport.RequestError", typed[*dirimport.RequestError](), Usage, "usage", "", "the import's options make no sense"},
	{"dirimport.HoldsError", typed[*dirimport.HoldsError](), Refused, "holds_store", "import", "the directory holds the store, a mounted fork or a file system of the kernel's own"},
	{"dirimport.ChangedError", typed[*dirimport.ChangedError](), Failed, "changed", "", "a file was written to while it was read"},
	{"glob.Error", typed[*glob.Error](), Usage, "usage", "", "a pattern makes no sense"},

	{"overlay.LimitError", typed[*overlay.LimitError](), Failed, "limit", "", "the fork's limit is reached"},
	{"overlay.CorruptError", typed[*overlay.CorruptError](), Failed, "damaged", "", "the fork's own files are damaged; see tine fsck"},
	{"overlay.BaseError", typed[*overlay.BaseError](), Failed, "damaged", "", "a layer belongs to another fork or base"},
	{"overlay.BrokenError", typed[*overlay.BrokenError](), Failed, "fork_read_only", "", "a write failed and the fork is read-only until it is opened again"},
	{"overlay.IOError", typed[*overlay.IOError](), Failed, "io", "", "something in the fork could not be read or written"},
	{"journal.VersionError", typed[*journal.VersionError](), Refused, "version", "format", "a journal was written by another version of tine"},
	{"journal.BadRecordError", typed[*journal.BadRecordError](), Failed, "damaged", "", "a journal is damaged"},
	{"fs.ErrNoDevice", sentinel(fs.ErrNoDevice), Failed, "no_fuse", "", "FUSE can't be used here: its device is missing or closed to us; see tine doctor"},
	{"fs.ErrBusy", sentinel(fs.ErrBusy), Failed, "mount_point_busy", "", "something is mounted at the mount point already"},
	{"fs.ErrMountPoint", sentinel(fs.ErrMountPoint), Failed, "mount_point", "", "the mount point is missing or is no directory"},
	{"fs.ErrNotMounted", sentinel(fs.ErrNotMounted), Failed, "not_mounted", "", "what should be unmounted is no mount of tine"},

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
