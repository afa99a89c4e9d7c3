package webhooks

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stripe/stripe-go/v76/webhook"
)

// FuzzDecode holds that no body brings Decode down, that it refuses with nothing but ErrUnreadable, and that what it
// accepts can be stored and is what the JSON says.
func FuzzDecode(f *testing.F) {
	for _, file := range []string{"refund.created", "charge.refund.updated-without-intent", "review.opened"} {
		var small bytes.Buffer // the larger the seed, the fewer the tries
		if err := json.Compact(&small, fixture(f, "2025-09-30.clover", file)); err != nil {
			f.Fatal(err)
		}
		f.Add(small.Bytes())
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		ev, err := Decode(body)
		if err != nil {
			if !errors.Is(err, ErrUnreadable) || ev != (Event{}) {
				t.Fatalf("%+v, %v: want nothing and ErrUnreadable", ev, err)
			}
			return
		}
		for _, s := range []string{ev.ID, ev.Type, ev.Account, ev.APIVersion, ev.ObjectID, ev.Object, ev.Payment} {
			if !utf8.ValidString(s) || strings.ContainsRune(s, 0) || len(s) > 255 {
				t.Errorf("kept a string that is not sane: %q", s)
			}
		}
		if !strings.HasPrefix(ev.ID, "evt_") || ev.Type == "" {
			t.Errorf("not an event: %+v", ev)
		}
		if y := ev.Created.Year(); ev.Created.Location() != time.UTC || y > 9999 || (y < 1970 && !ev.Created.IsZero()) {
			t.Errorf("created at %v", ev.Created)
		}
		if ev.ObjectID != "" && ev.Payment == "" {
			t.Errorf("object %q points nowhere", ev.ObjectID)
		}
		var all map[string]any
		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber() // a number that no float holds is JSON all the same
		if err := d.Decode(&all); err != nil || all["id"] != ev.ID || all["type"] != ev.Type {
			t.Errorf("the JSON says id %v, type %v, %v", all["id"], all["type"], err)
		}
		if again, err := Decode(body); err != nil || again != ev {
			t.Errorf("the second time: %+v, %v", again, err)
		}
	})
}

// FuzzVerify holds that a signature is good for the signed bytes, the secret and the time of signing, and for nothing else;
// and that a header that is good holds the one right signature, whatever else is in it.
func FuzzVerify(f *testing.F) {
	f.Fuzz(func(t *testing.T, body, other []byte, secret, otherSecret string, offset int64, header string) {
		mine, err := NewVerifier(VerifierConfig{Secrets: []string{secret}, Now: func() time.Time { return noon }})
		if err != nil {
			return
		}
		at := time.Unix(noon.Unix()+offset, 0)
		right := signature(string(body), strings.TrimSpace(secret), at)
		fresh := -300 <= offset && offset <= 300
		if err := mine.Verify(body, right); (err == nil) != fresh {
			t.Errorf("signed %d s from now: %v", offset, err)
		}
		if !bytes.Equal(body, other) {
			if err := mine.Verify(other, right); !errors.Is(err, ErrBadSignature) {
				t.Errorf("another body: %v", err)
			}
		}
		theirs, err := NewVerifier(VerifierConfig{Secrets: []string{otherSecret}, Now: func() time.Time { return noon }})
		if err == nil && strings.TrimSpace(secret) != strings.TrimSpace(otherSecret) {
			if err := theirs.Verify(body, right); !errors.Is(err, ErrBadSignature) {
				t.Errorf("another secret: %v", err)
			}
		}
		for _, h := range []string{header, right + header, header + "," + right} {
			err := mine.Verify(body, h)
			if err == nil && !holdsSignature(h, body, strings.TrimSpace(secret)) {
				t.Errorf("verified by header %q", h)
			}
			if err != nil && !errors.Is(err, ErrNotSigned) && !errors.Is(err, ErrBadSignature) && !errors.Is(err, ErrTooOld) &&
				!errors.Is(err, ErrFromFuture) {
				t.Errorf("header %q: error of no kind: %v", h, err)
			}
		}
	})
}

// holdsSignature tells whether the header holds the signature of body at the time it states.
func holdsSignature(header string, body []byte, secret string) bool {
	at, err := signedAt(header)
	if err != nil {
		return false
	}
	return strings.Contains(strings.ToLower(header), hex.EncodeToString(webhook.ComputeSignature(at, body, secret)))
}
