package inventory

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/prf"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// fingerprintSize is the length of the keyed hash in bytes. 128 bits: two different keys of a pool share one with a
// chance below 2⁻⁷⁰ even at a billion keys.
const fingerprintSize = 16

// ErrKeyset is the error of a keyset that cannot be read.
var ErrKeyset = errors.New("not a keyset")

// A Keyset encrypts keys and makes their fingerprints. It holds one Tink keyset for each of the two, so that both can
// be rotated: every ciphertext and every fingerprint begins with the id of what made it.
type Keyset struct {
	encryption, fingerprint *keyset.Handle

	aead tink.AEAD
	prf  *prf.Set
}

type keysetDocument struct {
	Encryption  json.RawMessage `json:"encryption"`
	Fingerprint json.RawMessage `json:"fingerprint"`
}

// NewKeyset makes a keyset from the system's randomness.
func NewKeyset() (*Keyset, error) {
	encryption, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, fmt.Errorf("make the encryption keyset: %w", err)
	}
	fingerprint, err := keyset.NewHandle(prf.HMACSHA256PRFKeyTemplate())
	if err != nil {
		return nil, fmt.Errorf("make the fingerprint keyset: %w", err)
	}
	return newKeyset(encryption, fingerprint)
}

// ParseKeyset reads what Marshal wrote. Its errors never hold a part of the text.
func ParseKeyset(text []byte) (*Keyset, error) {
	var doc keysetDocument
	if err := json.Unmarshal(bytes.TrimSpace(text), &doc); err != nil {
		return nil, fmt.Errorf("%w: it is not the JSON that `keytill keyset new` prints", ErrKeyset)
	}
	encryption, err := readHandle(doc.Encryption)
	if err != nil {
		return nil, fmt.Errorf("%w: its part \"encryption\" is missing or damaged", ErrKeyset)
	}
	fingerprint, err := readHandle(doc.Fingerprint)
	if err != nil {
		return nil, fmt.Errorf("%w: its part \"fingerprint\" is missing or damaged", ErrKeyset)
	}
	return newKeyset(encryption, fingerprint)
}

func newKeyset(encryption, fingerprint *keyset.Handle) (*Keyset, error) {
	sealer, err := aead.New(encryption)
	if err != nil {
		return nil, fmt.Errorf("%w: its part \"encryption\" is of another kind", ErrKeyset)
	}
	hasher, err := prf.NewPRFSet(fingerprint)
	if err != nil {
		return nil, fmt.Errorf("%w: its part \"fingerprint\" is of another kind", ErrKeyset)
	}
	return &Keyset{encryption: encryption, fingerprint: fingerprint, aead: sealer, prf: hasher}, nil
}

// Marshal writes the keyset in the clear, as JSON: who has it reads every key.
func (k *Keyset) Marshal() ([]byte, error) {
	encryption, err := writeHandle(k.encryption)
	if err != nil {
		return nil, err
	}
	fingerprint, err := writeHandle(k.fingerprint)
	if err != nil {
		return nil, err
	}
	return json.Marshal(keysetDocument{Encryption: encryption, Fingerprint: fingerprint})
}

// seal encrypts a key's text for one row. The ciphertext opens only under the same merchant, pool and key id.
func (k *Keyset) seal(merchantID string, poolID, keyID int64, text []byte) ([]byte, error) {
	ciphertext, err := k.aead.Encrypt(text, rowData(merchantID, poolID, keyID))
	if err != nil {
		return nil, fmt.Errorf("encrypt key %d: %w", keyID, err)
	}
	return ciphertext, nil
}

func (k *Keyset) open(merchantID string, poolID, keyID int64, ciphertext []byte) ([]byte, error) {
	text, err := k.aead.Decrypt(ciphertext, rowData(merchantID, poolID, keyID))
	if err != nil {
		return nil, fmt.Errorf("key %d does not open with this keyset: %w", keyID, err)
	}
	return text, nil
}

// rowData names the row a ciphertext belongs to. The merchant's length stands before it, so that no two rows share it.
func rowData(merchantID string, poolID, keyID int64) []byte {
	data := make([]byte, 0, 4+len(merchantID)+16)
	data = binary.BigEndian.AppendUint32(data, uint32(len(merchantID)))
	data = append(data, merchantID...)
	data = binary.BigEndian.AppendUint64(data, uint64(poolID))
	return binary.BigEndian.AppendUint64(data, uint64(keyID))
}

// Fingerprint is the keyed hash by which duplicates are found, made with the primary key of the keyset.
func (k *Keyset) Fingerprint(text []byte) ([]byte, error) {
	return k.fingerprintWith(k.prf.PrimaryID, text)
}

// Fingerprints are those a key may be stored under, the primary one first: one for each key of the keyset.
func (k *Keyset) Fingerprints(text []byte) ([][]byte, error) {
	ids := make([]uint32, 0, len(k.prf.PRFs))
	for id := range k.prf.PRFs {
		if id != k.prf.PrimaryID {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	ids = append([]uint32{k.prf.PrimaryID}, ids...)
	fingerprints := make([][]byte, 0, len(ids))
	for _, id := range ids {
		fingerprint, err := k.fingerprintWith(id, text)
		if err != nil {
			return nil, err
		}
		fingerprints = append(fingerprints, fingerprint)
	}
	return fingerprints, nil
}

func (k *Keyset) fingerprintWith(id uint32, text []byte) ([]byte, error) {
	hash, err := k.prf.PRFs[id].ComputePRF(text, fingerprintSize)
	if err != nil {
		return nil, fmt.Errorf("make a fingerprint: %w", err)
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+fingerprintSize), id), hash...), nil
}

func readHandle(text json.RawMessage) (*keyset.Handle, error) {
	return insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(text)))
}

func writeHandle(handle *keyset.Handle) (json.RawMessage, error) {
	var text bytes.Buffer
	if err := insecurecleartextkeyset.Write(handle, keyset.NewJSONWriter(&text)); err != nil {
		return nil, fmt.Errorf("write the keyset: %w", err)
	}
	return text.Bytes(), nil
}
