package journal

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"hash/crc32"
)

// LayerID names one layer (a journal and a data file) for ever. It is random, so that layers can be made without
// asking anybody.
type LayerID [16]byte

// NewLayerID makes an unused id.
func NewLayerID() LayerID {
	var id LayerID
	rand.Read(id[:])
	return id
}

// ParseLayerID is the inverse of String.
func ParseLayerID(s string) (LayerID, error) {
	var id LayerID
	if len(s) != 32 {
		return id, fmt.Errorf("not a layer id: %q", s)
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil || id.String() != s {
		return LayerID{}, fmt.Errorf("not a layer id: %q", s)
	}
	return id, nil
}

// String is 32 lower-case hex digits, the name of the layer's directory.
func (id LayerID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether id names no layer.
func (id LayerID) IsZero() bool { return id == LayerID{} }

// MarshalText and UnmarshalText let registries keep ids as text.
func (id LayerID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

func (id *LayerID) UnmarshalText(b []byte) error {
	v, err := ParseLayerID(string(b))
	if err == nil {
		*id = v
	}
	return err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC is the CRC32C that covers block data in a layer's data file.
func CRC(b []byte) uint32 { return crc32.Update(0, castagnoli, b) }

// Salt starts every record's CRC of this layer.
func (id LayerID) Salt() uint32 { return crc32.Update(0, castagnoli, id[:]) }
