package journal

import "tine/snapshot/image"

// Kind says what an effect does. The numbers are part of the format and never change.
type Kind uint8

const (
	// New makes an inode: Ino Mode UID GID Rdev Nlink Parent, Data is a symlink's target. All its times are the
	// record's. Nlink 0 is a file made by O_TMPFILE.
	New Kind = 1
	// Attr sets the attributes named in Mask.
	Attr Kind = 2
	// Link makes Name in Dir mean Ino of type Type at readdir position Pos, whatever it meant before.
	Link Kind = 3
	// Unlink removes Name from Dir.
	Unlink Kind = 4
	// Inline puts Data at Off of Ino.
	Inline Kind = 5
	// Block puts Len bytes at Off of Ino; they lie at Loc of this layer's data file and their CRC32C is CRC.
	Block Kind = 6
	// Size sets Ino's size to Len and drops what lies behind it.
	Size Kind = 7
	// Zero makes [Off, Off+Len) of Ino read as zeroes. With FlagReserved it counts as allocated.
	Zero Kind = 8
	// SetXattr and DelXattr change the attribute Name of Ino; Data is the value.
	SetXattr Kind = 9
	DelXattr Kind = 10
	// Drop ends an orphan.
	Drop Kind = 11
	// Sync is a sync mark: every block named in records up to sequence Off is on disk, and the journal itself up to
	// sequence Len.
	Sync Kind = 12
	// Session says who appends from here on: the machine's boot (Boot) and the connection (Conn) of replies.
	Session Kind = 13
	// DropOrphans ends every orphan: a server without takeover starts so.
	DropOrphans Kind = 14
	// Clone makes [DstOff, DstOff+Len) of Dst show what [Off, Off+Len) of Ino shows, by sharing.
	Clone   Kind = 15
	kindEnd Kind = 16
)

// Flags of effects.
const (
	// FlagTouch (Inline, Block, Size, Zero, Clone: of the file that changes) sets mtime and ctime to the record's time.
	FlagTouch uint8 = 1
	// FlagKeepSize (Inline, Block, Zero, Clone) leaves the size; else it grows to the end of the range.
	FlagKeepSize uint8 = 2
	// FlagReserved (Zero): the range counts as allocated.
	FlagReserved uint8 = 4
)

// Bits of Effect.Mask; fields follow in the order of the bits.
const (
	MaskMode   uint32 = 1 << iota
	MaskUID           // UID
	MaskGID           // GID
	MaskNlink         // Nlink
	MaskParent        // Parent
	MaskAtime         // Atime, from now on apart from mtime
	MaskMtime         // Mtime
	MaskCtime         // Ctime
	MaskMtimeNow
	MaskCtimeNow
	maskEnd
)

// Effect is one change of one thing. Which fields count depends on Kind.
type Effect struct {
	Kind  Kind
	Flags uint8
	Type  uint8 // Link: DT_*
	Mask  uint32
	Mode  uint32
	UID   uint32
	GID   uint32
	Nlink uint32
	Rdev  uint32
	CRC   uint32

	Ino    uint64
	Dir    uint64
	Dst    uint64
	Parent uint64
	Pos    uint64
	Off    int64
	Len    int64
	DstOff int64
	Loc    int64

	Atime image.Time
	Mtime image.Time
	Ctime image.Time

	Name string
	// Data is never kept by the package; after Decode it is a part of the decoded bytes.
	Data []byte
	// At is where Data lies, in bytes from the start of the record. Set by Append and Decode.
	At int64

	Boot [16]byte
	Conn [16]byte
}

// Record is the effects of one operation, applied together or not at all.
type Record struct {
	Seq uint64 // one more than the record before
	Gen uint64 // the fork's generation (reset)
	// Begin and Commit bracket a transaction of several records; an ordinary record has both. Records after a Begin
	// without Commit never happened.
	Begin, Commit bool
	Time          image.Time
	// HasReply says that the operation was asked for by request Unique of the session's connection, and that Value
	// (an inode number or a count) was the answer.
	HasReply bool
	Unique   uint64
	Value    uint64
	Effects  []Effect
}

// Reset empties r and keeps its memory.
func (r *Record) Reset() {
	eff := r.Effects[:0]
	*r = Record{Effects: eff}
}

// Add appends an effect of kind k and returns it for filling in. The pointer is good until the next Add.
func (r *Record) Add(k Kind) *Effect {
	if len(r.Effects) < cap(r.Effects) {
		r.Effects = r.Effects[:len(r.Effects)+1]
		e := &r.Effects[len(r.Effects)-1]
		*e = Effect{Kind: k}
		return e
	}
	r.Effects = append(r.Effects, Effect{Kind: k})
	return &r.Effects[len(r.Effects)-1]
}
