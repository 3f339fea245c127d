// Package journal is the file that makes a fork's changes survive: a header and a sequence of records, each with
// the effects of one operation. It knows the bytes (overlay/FORMAT.md) and nothing of what effects mean.
//
// A record is appended with one write(2) before its operation is acknowledged. Its CRC is salted with the layer's
// id, so that bytes of a journal that are stored *in* a fork never look like records of that fork's own journal.
//
// Values of this package have no locks; the owner of a layer serialises appends, and a closed journal is immutable.
package journal
