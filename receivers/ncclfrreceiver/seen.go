package ncclfrreceiver

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"go.opentelemetry.io/collector/extension/xextension/storage"
)

// seen remembers the files that are done with, read or refused, each in a
// numbered slot. A full memory takes the slot filled longest ago. One change is
// one write of one slot.
//
// Layout of the storage: "next" counts the slots ever filled (8 bytes,
// big-endian), "slot/<n>" holds a mark in JSON.
type seen struct {
	most   int
	client storage.Client // nil: forgotten with the process
	next   uint64
	slots  []mark
	byPath map[string]int
	byHash map[[16]byte]int
}

// mark is one file: the state it was in and what was in it.
type mark struct {
	Path  string
	Print fingerprint
	Hash  [16]byte // zero: refused without reading
	// Tries is how often its reading has begun and not ended. It is noted before: what
	// ends this process must not end the next one for ever.
	Tries int `json:",omitempty"`
}

func newSeen(most int) *seen {
	return &seen{most: most, byPath: map[string]int{}, byHash: map[[16]byte]int{}}
}

// load takes up what an earlier process remembered. What cannot be read is as
// good as not remembered: its file is read again.
func (s *seen) load(ctx context.Context, client storage.Client) error {
	s.client = client
	data, err := client.Get(ctx, "next")
	if err != nil || len(data) != 8 {
		return err
	}
	s.next = binary.BigEndian.Uint64(data)
	filled := int(min(s.next, uint64(s.most)))
	gets := make([]*storage.Operation, filled)
	for i := range gets {
		gets[i] = storage.GetOperation(slotKey(i))
	}
	if err := client.Batch(ctx, gets...); err != nil {
		return err
	}
	for i, get := range gets {
		var m mark
		_ = json.Unmarshal(get.Value, &m) // a damaged slot is an empty one
		s.slots = append(s.slots, mark{})
		s.fill(i, m)
	}
	return nil
}

func slotKey(n int) string { return fmt.Sprintf("slot/%d", n) }

// done reports whether the file was dealt with in this state.
func (s *seen) done(path string, print fingerprint) bool {
	slot, found := s.byPath[path]
	return found && s.slots[slot].Print == print && s.slots[slot].Tries == 0
}

// tries returns how often the reading of the file in this state has not ended.
func (s *seen) tries(path string, print fingerprint) int {
	if slot, found := s.byPath[path]; found && s.slots[slot].Print == print {
		return s.slots[slot].Tries
	}
	return 0
}

// knows reports whether that content was read, under whatever name.
func (s *seen) knows(hash [16]byte) bool {
	_, found := s.byHash[hash]
	return found
}

// put remembers a file, here and in the storage.
func (s *seen) put(ctx context.Context, m mark) error {
	slot, found := s.byPath[m.Path]
	if !found {
		slot = int(s.next % uint64(s.most))
		s.next++
		if slot == len(s.slots) {
			s.slots = append(s.slots, mark{})
		}
	}
	s.fill(slot, m)
	if s.client == nil {
		return nil
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return s.client.Batch(ctx, storage.SetOperation(slotKey(slot), data),
		storage.SetOperation("next", binary.BigEndian.AppendUint64(nil, s.next)))
}

func (s *seen) fill(slot int, m mark) {
	old := s.slots[slot]
	if s.byPath[old.Path] == slot {
		delete(s.byPath, old.Path)
	}
	if s.byHash[old.Hash] == slot {
		delete(s.byHash, old.Hash)
	}
	s.slots[slot] = m
	if m.Path != "" {
		s.byPath[m.Path] = slot
	}
	if m.Hash != [16]byte{} {
		s.byHash[m.Hash] = slot
	}
}

func (s *seen) close(ctx context.Context) error {
	if s.client == nil {
		return nil
	}
	return s.client.Close(ctx)
}
