package inventory

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/prf"
)

// A keyset rotates in steps, since several processes hold copies of it: each step is understood by those that are one
// step behind.
//
//	old ──WithNewKeys──▶ old*, new ──Promoted──▶ old, new* ──Rotate the database──▶ ──WithoutOldKeys──▶ new*
//
// The star marks the primary key, which encrypts; all of them decrypt. The newest is the last.

// Errors of a keyset that is not ready for a step.
var (
	ErrRotating    = errors.New("this keyset has a new key already: it is in the midst of a rotation")
	ErrNotRotating = errors.New("this keyset has one key: begin a rotation with `keytill keyset rotate --add`")
	ErrNotPromoted = errors.New("this keyset's newest key is not its primary one yet: `keytill keyset rotate --promote`")
)

// WithNewKeys is the keyset with a new key in each of its parts, which is not the primary one yet.
func (k *Keyset) WithNewKeys() (*Keyset, error) {
	if k.rotating() {
		return nil, ErrRotating
	}
	return k.changed(func(m *keyset.Manager, _ []uint32, template *tinkpb.KeyTemplate) error {
		_, err := m.Add(template)
		return err
	})
}

// Promoted is the keyset with the newest key of each part as the primary one.
func (k *Keyset) Promoted() (*Keyset, error) {
	if !k.rotating() {
		return nil, ErrNotRotating
	}
	return k.changed(func(m *keyset.Manager, ids []uint32, _ *tinkpb.KeyTemplate) error {
		return m.SetPrimary(ids[len(ids)-1])
	})
}

// WithoutOldKeys is the keyset with its primary keys alone. Unused says whether that loses nothing.
func (k *Keyset) WithoutOldKeys() (*Keyset, error) {
	switch {
	case !k.rotating():
		return nil, ErrNotRotating
	case !k.IsPromoted():
		return nil, ErrNotPromoted
	}
	return k.changed(func(m *keyset.Manager, ids []uint32, _ *tinkpb.KeyTemplate) error {
		var errs []error
		for _, id := range ids[:len(ids)-1] {
			errs = append(errs, m.Delete(id))
		}
		return errors.Join(errs...)
	})
}

// IsPromoted reports whether the newest key of each part is the primary one.
func (k *Keyset) IsPromoted() bool {
	for _, handle := range []*keyset.Handle{k.encryption, k.fingerprint} {
		if ids := keyIDs(handle); ids[len(ids)-1] != primaryID(handle) {
			return false
		}
	}
	return true
}

// IsRotating reports whether the keyset has more than one key.
func (k *Keyset) IsRotating() bool { return k.rotating() }

func (k *Keyset) rotating() bool { return k.encryption.Len() > 1 || k.fingerprint.Len() > 1 }

// changed applies a change to both parts.
func (k *Keyset) changed(change func(m *keyset.Manager, ids []uint32, template *tinkpb.KeyTemplate) error) (*Keyset, error) {
	var parts []*keyset.Handle
	for _, part := range []struct {
		handle   *keyset.Handle
		template *tinkpb.KeyTemplate
	}{{k.encryption, aead.AES256GCMKeyTemplate()}, {k.fingerprint, prf.HMACSHA256PRFKeyTemplate()}} {
		manager := keyset.NewManagerFromHandle(part.handle)
		if err := change(manager, keyIDs(part.handle), part.template); err != nil {
			return nil, fmt.Errorf("change the keyset: %w", err)
		}
		handle, err := manager.Handle()
		if err != nil {
			return nil, fmt.Errorf("change the keyset: %w", err)
		}
		parts = append(parts, handle)
	}
	return newKeyset(parts[0], parts[1])
}

// keyIDs are the ids of a part's keys, the newest last.
func keyIDs(handle *keyset.Handle) []uint32 {
	var ids []uint32
	for _, key := range handle.KeysetInfo().GetKeyInfo() {
		ids = append(ids, key.GetKeyId())
	}
	return ids
}

func primaryID(handle *keyset.Handle) uint32 { return handle.KeysetInfo().GetPrimaryKeyId() }

// Every ciphertext begins with Tink's version, 1, and the id of its key; every fingerprint with the id of its key.
func (k *Keyset) ciphertextStart() []byte {
	return binary.BigEndian.AppendUint32([]byte{1}, primaryID(k.encryption))
}

func (k *Keyset) fingerprintStart() []byte {
	return binary.BigEndian.AppendUint32(nil, primaryID(k.fingerprint))
}

// current reports whether a row is stored under the primary keys.
func (k *Keyset) current(ciphertext, fingerprint []byte) bool {
	return bytes.HasPrefix(ciphertext, k.ciphertextStart()) && bytes.HasPrefix(fingerprint, k.fingerprintStart())
}

// behind reports whether a row is stored under newer keys than the primary ones, or under keys that are not the keyset's.
func (k *Keyset) behind(ciphertext, fingerprint []byte) bool {
	newer := func(handle *keyset.Handle, start []byte) bool {
		if len(start) < 4 {
			return true
		}
		ids := keyIDs(handle)
		at := slices.Index(ids, binary.BigEndian.Uint32(start))
		return at < 0 || at > slices.Index(ids, primaryID(handle))
	}
	return newer(k.encryption, ciphertext[min(1, len(ciphertext)):]) || newer(k.fingerprint, fingerprint)
}
