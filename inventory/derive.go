package inventory

import (
	"fmt"
	"slices"
)

// derivedSize is the length of a derived secret in bytes.
const derivedSize = 32

// Derive makes secrets for another purpose from the keyset, one from each of its keys, the primary's first: sign with
// the first, accept all.
//
// They come from the hash that also makes fingerprints. No key's fingerprint tells of them, since a key has no spaces
// around it, and what is hashed here has.
func (k *Keyset) Derive(purpose string) ([][]byte, error) {
	ids := make([]uint32, 0, len(k.prf.PRFs))
	for id := range k.prf.PRFs {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b uint32) int {
		switch {
		case a == k.prf.PrimaryID:
			return -1
		case b == k.prf.PrimaryID:
			return 1
		default:
			return int(int64(a) - int64(b))
		}
	})
	secrets := make([][]byte, len(ids))
	for i, id := range ids {
		secret, err := k.prf.PRFs[id].ComputePRF([]byte(" keytill: "+purpose+" "), derivedSize)
		if err != nil {
			return nil, fmt.Errorf("derive a secret: %w", err)
		}
		secrets[i] = secret
	}
	return secrets, nil
}
