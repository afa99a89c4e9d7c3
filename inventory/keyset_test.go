package inventory

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func freshKeyset(t testing.TB) *Keyset {
	t.Helper()
	keyset, err := NewKeyset()
	if err != nil {
		t.Fatal(err)
	}
	return keyset
}

func marshal(t testing.TB, keyset *Keyset) []byte {
	t.Helper()
	text, err := keyset.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func fingerprint(t testing.TB, keyset *Keyset, text string) []byte {
	t.Helper()
	hash, err := keyset.Fingerprint([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

func TestAKeysetReadAgainOpensAndFindsTheSame(t *testing.T) {
	t.Parallel()
	keyset := freshKeyset(t)
	ciphertext, err := keyset.seal("default", 1, 2, []byte("KEY-1"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseKeyset(append(append([]byte("\n  "), marshal(t, keyset)...), "\r\n"...))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := again.open("default", 1, 2, ciphertext); err != nil || string(text) != "KEY-1" {
		t.Errorf("opened %q, error %v", text, err)
	}
	if !bytes.Equal(fingerprint(t, keyset, "KEY-1"), fingerprint(t, again, "KEY-1")) {
		t.Error("another fingerprint after the round trip")
	}
	if diff := cmp.Diff(string(marshal(t, keyset)), string(marshal(t, again))); diff != "" {
		t.Error("another text after the round trip")
	}
}

func TestACiphertextOpensOnItsOwnRowOnly(t *testing.T) {
	t.Parallel()
	keyset := freshKeyset(t)
	ciphertext, err := keyset.seal("default", 1, 2, []byte("KEY-1"))
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(ciphertext)
	changed[len(changed)-1] ^= 1
	for name, open := range map[string]func() ([]byte, error){
		"another merchant":       func() ([]byte, error) { return keyset.open("defaulu", 1, 2, ciphertext) },
		"no merchant":            func() ([]byte, error) { return keyset.open("", 1, 2, ciphertext) },
		"another pool":           func() ([]byte, error) { return keyset.open("default", 2, 2, ciphertext) },
		"another key":            func() ([]byte, error) { return keyset.open("default", 1, 3, ciphertext) },
		"pool and key exchanged": func() ([]byte, error) { return keyset.open("default", 2, 1, ciphertext) },
		"another keyset":         func() ([]byte, error) { return freshKeyset(t).open("default", 1, 2, ciphertext) },
		"a bit of it changed":    func() ([]byte, error) { return keyset.open("default", 1, 2, changed) },
		"its end cut off":        func() ([]byte, error) { return keyset.open("default", 1, 2, ciphertext[:len(ciphertext)-1]) },
		"nothing":                func() ([]byte, error) { return keyset.open("default", 1, 2, nil) },
	} {
		text, err := open()
		if err == nil || text != nil {
			t.Errorf("%s: opened %q", name, text)
		} else if strings.Contains(err.Error(), "KEY-1") {
			t.Errorf("%s: the error holds the key: %v", name, err)
		}
	}
	if text, err := keyset.open("default", 1, 2, ciphertext); err != nil || string(text) != "KEY-1" {
		t.Errorf("on its own row: %q, %v", text, err)
	}
}

func TestNoTwoRowsShareTheirData(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, merchant := range []string{"", "a", "ab", "a\x00\x00\x00\x00\x00\x00\x00\x01"} {
		for _, pool := range []int64{0, 1, 256, 1 << 40} {
			for _, key := range []int64{0, 1, 256, 1 << 40} {
				data := string(rowData(merchant, pool, key))
				if seen[data] {
					t.Errorf("%q/%d/%d has the data of another row", merchant, pool, key)
				}
				seen[data] = true
			}
		}
	}
}

func TestOneTextTwiceIsSealedDifferently(t *testing.T) {
	t.Parallel()
	keyset := freshKeyset(t)
	a, errA := keyset.seal("default", 1, 2, []byte("KEY-1"))
	b, errB := keyset.seal("default", 1, 2, []byte("KEY-1"))
	if errA != nil || errB != nil || bytes.Equal(a, b) || bytes.Contains(a, []byte("KEY-1")) {
		t.Errorf("%x and %x, errors %v, %v", a, b, errA, errB)
	}
}

func TestFingerprintsAreTheKeysetsOwn(t *testing.T) {
	t.Parallel()
	a, b := freshKeyset(t), freshKeyset(t)
	hash := fingerprint(t, a, "KEY-1")
	if len(hash) != 4+fingerprintSize || !bytes.Equal(hash, fingerprint(t, a, "KEY-1")) {
		t.Errorf("fingerprint %x is not the same twice", hash)
	}
	if bytes.Equal(hash, fingerprint(t, a, "KEY-2")) || bytes.Equal(hash, fingerprint(t, a, "key-1")) {
		t.Error("another text has the same fingerprint")
	}
	if bytes.Equal(hash[4:], fingerprint(t, b, "KEY-1")[4:]) {
		t.Error("another keyset makes the same fingerprint")
	}
	list, err := a.Fingerprints([]byte("KEY-1"))
	if diff := cmp.Diff([][]byte{hash}, list); diff != "" || err != nil {
		t.Errorf("error %v, fingerprints (-want +got):\n%s", err, diff)
	}
}

func TestWhatIsNoKeysetIsRefusedWithoutShowingIt(t *testing.T) {
	t.Parallel()
	text := marshal(t, freshKeyset(t))
	var doc keysetDocument
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	join := func(encryption, fingerprint json.RawMessage) string {
		text, err := json.Marshal(keysetDocument{encryption, fingerprint})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	damaged := func(part json.RawMessage) json.RawMessage {
		return json.RawMessage(strings.Replace(string(part), `"value":"`, `"value":"!`, 1))
	}
	for name, text := range map[string]string{
		"nothing":                "",
		"null":                   "null",
		"a number":               "12",
		"a list":                 `["hunter2"]`,
		"a password":             "hunter2",
		"no JSON at all":         "{hunter2",
		"an empty object":        "{}",
		"a part that is null":    join(json.RawMessage("null"), doc.Fingerprint),
		"a part that is a text":  join(json.RawMessage(`"hunter2"`), doc.Fingerprint),
		"one part alone":         join(doc.Encryption, json.RawMessage("{}")),
		"the parts exchanged":    join(doc.Fingerprint, doc.Encryption),
		"encryption twice":       join(doc.Encryption, doc.Encryption),
		"fingerprint twice":      join(doc.Fingerprint, doc.Fingerprint),
		"damaged encryption":     join(damaged(doc.Encryption), doc.Fingerprint),
		"damaged fingerprint":    join(doc.Encryption, damaged(doc.Fingerprint)),
		"cut off":                string(text[:len(text)/2]),
		"twice in a file":        string(text) + "\n" + string(text),
		"another primary key":    strings.Replace(string(text), `"primaryKeyId":`, `"primaryKeyId":1`, 1),
		"a disabled key":         strings.Replace(string(text), "ENABLED", "DISABLED", 1),
		"a key type of nobody's": strings.Replace(string(text), "AesGcmKey", "Hunter2Key", 1),
	} {
		keyset, err := ParseKeyset([]byte(text))
		if !errors.Is(err, ErrKeyset) || keyset != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), secretOf(text)) {
			t.Errorf("%s: the error holds a part of the keyset: %v", name, err)
		}
	}
}

// secretOf is the first secret value in the text, or something that no error holds.
func secretOf(text string) string {
	_, after, found := strings.Cut(text, `"value":"`)
	secret, _, closed := strings.Cut(after, `"`)
	if !found || !closed || len(secret) < 8 {
		return "\x00"
	}
	return secret
}

func FuzzParseKeyset(f *testing.F) {
	f.Add(marshal(f, freshKeyset(f)))
	f.Add([]byte(`{"encryption":{"primaryKeyId":1,"key":[{}]},"fingerprint":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		keyset, err := ParseKeyset(text)
		if (keyset == nil) == (err == nil) || err != nil && !errors.Is(err, ErrKeyset) {
			t.Fatalf("keyset %v, error %v", keyset != nil, err)
		}
		if err != nil {
			return
		}
		if _, err := keyset.seal("m", 1, 1, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := keyset.Fingerprint([]byte("x")); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTextsOpenTheKeysThatAreAskedFor(t *testing.T) {
	t.Parallel()
	db, _ := stocked(t, 3)
	ids := all[int64](t, db, `SELECT key_id FROM keytill.keys ORDER BY position`)
	got, err := testKeyset().Texts(t.Context(), db, DefaultMerchant, []int64{ids[0], ids[2], 99})
	if diff := cmp.Diff(map[int64]string{ids[0]: "KEY-1", ids[2]: "KEY-3"}, got); diff != "" || err != nil {
		t.Errorf("error %v, texts (-want +got):\n%s", err, diff)
	}
	if got, err := testKeyset().Texts(t.Context(), db, "other", ids); len(got) != 0 || err != nil {
		t.Errorf("another merchant reads %v, error %v", got, err)
	}
	// A ciphertext that was moved to another row does not open there.
	exec(t, db, `UPDATE keytill.keys SET ciphertext = (SELECT ciphertext FROM keytill.keys WHERE key_id = $1) WHERE key_id = $2`, ids[0], ids[1])
	if got, err := testKeyset().Texts(t.Context(), db, DefaultMerchant, ids); err == nil || got != nil || strings.Contains(err.Error(), "KEY-") {
		t.Errorf("a moved ciphertext: %v, error %v", got, err)
	}
}
