package inventory

import (
	"bytes"
	"testing"
)

// Whoever may import a key chooses what is hashed for its fingerprint, and whoever can read the database sees the result: a
// secret made the same way would be theirs to read.
func TestDerivedSecretsAreNoKeysFingerprints(t *testing.T) {
	t.Parallel()
	k := freshKeyset(t)
	for _, purpose := range []string{"buyer links", "x"} {
		secrets, err := k.Derive(purpose)
		if err != nil || len(secrets) != 1 || len(secrets[0]) != 32 {
			t.Fatalf("%d secrets, error %v", len(secrets), err)
		}
		for _, text := range []string{purpose, " " + purpose + " ", "keytill: " + purpose, " keytill: " + purpose + " "} {
			stored := bytes.Trim([]byte(text), " ") // as an import does
			fingerprint, err := k.Fingerprint(stored)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.HasPrefix(secrets[0], fingerprint[4:]) {
				t.Errorf("the secret for %q begins as the fingerprint of a key %q", purpose, stored)
			}
		}
	}
}

func TestEachPurposeAndEachKeysetHasASecretOfItsOwn(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 2 {
		k := freshKeyset(t)
		for _, purpose := range []string{"buyer links", "uploads"} {
			for range 2 {
				secrets, err := k.Derive(purpose)
				if err != nil {
					t.Fatal(err)
				}
				seen[string(secrets[0])] = true
			}
		}
	}
	if len(seen) != 4 {
		t.Errorf("two keysets and two purposes have %d secrets", len(seen))
	}
}
