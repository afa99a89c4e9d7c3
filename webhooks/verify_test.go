package webhooks

import (
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v76/webhook"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestVerifyBelievesOnlyAFreshSignatureOfOneSecret(t *testing.T) {
	const body = `{"id":"evt_1"}`
	v1 := func(at time.Time, secret string) string {
		return "v1=" + hex.EncodeToString(webhook.ComputeSignature(at, []byte(body), secret))
	}
	at := func(d time.Duration) time.Time { return noon.Add(d) }
	header := func(when time.Time, parts ...string) string {
		return fmt.Sprintf("t=%d,%s", when.Unix(), strings.Join(parts, ","))
	}
	old := v1(noon, "whsec_old")
	wrong := v1(noon, "whsec_other")
	forever := time.Unix(math.MaxInt64, 0)

	tests := []struct {
		name, header string
		want         error
	}{
		{"first secret", header(noon, v1(noon, "whsec_new")), nil},
		{"second secret", header(noon, old), nil},
		{"among signatures of others", header(noon, wrong, "v0=aa", old), nil},
		{"beside one that is no hex", header(noon, "v1=zz", old), nil},
		{"time at the end", old + fmt.Sprintf(",t=%d", noon.Unix()), nil},
		{"oldest", header(at(-5*time.Minute), v1(at(-5*time.Minute), "whsec_new")), nil},
		{"latest", header(at(5*time.Minute), v1(at(5*time.Minute), "whsec_new")), nil},
		{"too old", header(at(-301*time.Second), v1(at(-301*time.Second), "whsec_new")), ErrTooOld},
		{"from the future", header(at(301*time.Second), v1(at(301*time.Second), "whsec_old")), ErrFromFuture},
		{"of the year 1970", header(time.Unix(0, 0), v1(time.Unix(0, 0), "whsec_new")), ErrTooOld},
		{"old and not ours", header(at(-time.Hour), v1(at(-time.Hour), "whsec_other")), ErrBadSignature},
		{"no header", "", ErrNotSigned},
		{"blank header", " \t", ErrNotSigned},
		{"wrong secret", header(noon, wrong), ErrBadSignature},
		{"empty secret", header(noon, v1(noon, "")), ErrBadSignature},
		{"time changed", header(at(time.Second), old), ErrBadSignature},
		{"no time", v1(time.Time{}, "whsec_new"), ErrBadSignature},
		{"two times", fmt.Sprintf("t=%d,", at(time.Hour).Unix()) + header(noon, old), ErrBadSignature},
		{"time is a word", "t=now," + old, ErrBadSignature},
		{"no signature", header(noon, "v0=aa"), ErrBadSignature},
		{"only the scheme for tests", header(noon, "v0"+strings.TrimPrefix(old, "v1")), ErrBadSignature},
		{"empty signature", header(noon, "v1="), ErrBadSignature},
		{"signature cut", header(noon, old[:len(old)-2]), ErrBadSignature},
		{"space after the comma", fmt.Sprintf("t=%d, %s", noon.Unix(), old), ErrBadSignature},
		{"garbage", "garbage", ErrBadSignature},
		{"garbage with time", header(noon, "garbage", old), ErrBadSignature},
	}
	v := verifier(t, "whsec_new", "whsec_old")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := v.Verify([]byte(body), tt.header); !errors.Is(err, tt.want) {
				t.Errorf("error is %v, want %v", err, tt.want)
			}
		})
	}
	// The end of all time, which overflows on the way.
	if err := v.Verify([]byte(body), header(forever, v1(forever, "whsec_new"))); err == nil {
		t.Error("a signature of the end of all time verified")
	}
}

func TestVerifyWantsTheVeryBytes(t *testing.T) {
	body := `{"id":"evt_1", "type":"a.b"}`
	v, h := verifier(t, "whsec_a"), signature(body, "whsec_a", noon)
	if err := v.Verify([]byte(body), h); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"", body + "\n", " " + body, body[1:], strings.ReplaceAll(body, " ", ""), strings.ToUpper(body)} {
		if err := v.Verify([]byte(other), h); !errors.Is(err, ErrBadSignature) {
			t.Errorf("%q: error is %v, want ErrBadSignature", other, err)
		}
	}
}

func TestVerifyFollowsTheToleranceThatIsSet(t *testing.T) {
	v, err := NewVerifier(VerifierConfig{Secrets: []string{"whsec_a"}, Tolerance: time.Minute, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Verify(nil, signature("", "whsec_a", noon.Add(-time.Minute))); err != nil {
		t.Error(err)
	}
	if err := v.Verify(nil, signature("", "whsec_a", noon.Add(-61*time.Second))); !errors.Is(err, ErrTooOld) {
		t.Errorf("error is %v, want ErrTooOld", err)
	}
}

func TestVerifyTakesTheSystemsClockIfNoneIsGiven(t *testing.T) {
	v, err := NewVerifier(VerifierConfig{Secrets: []string{"whsec_a"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Verify(nil, signature("", "whsec_a", time.Now())); err != nil {
		t.Error(err)
	}
}

func TestZeroVerifierAcceptsNothing(t *testing.T) {
	var v Verifier
	if err := v.Verify(nil, signature("", "", noon)); !errors.Is(err, ErrBadSignature) {
		t.Errorf("error is %v, want ErrBadSignature", err)
	}
}

func TestNewVerifierTrimsSecrets(t *testing.T) {
	v := verifier(t, "  whsec_a\r\n")
	if err := v.Verify(nil, signature("", "whsec_a", noon)); err != nil {
		t.Error(err)
	}
}

func TestNewVerifierRefusesAWrongConfiguration(t *testing.T) {
	const hush = "hush5678"
	tests := []struct {
		name   string
		config VerifierConfig
		want   string
	}{
		{"no secret", VerifierConfig{}, "no signing secret"},
		{"empty secret", VerifierConfig{Secrets: []string{"whsec_a", ""}}, "secret 2 of 2 is empty"},
		{"blank secret", VerifierConfig{Secrets: []string{" \n"}}, "is empty"},
		{"only the prefix", VerifierConfig{Secrets: []string{"whsec_"}}, "nothing after whsec_"},
		{"without prefix", VerifierConfig{Secrets: []string{hush}}, "does not begin with whsec_"},
		{"prefix in capitals", VerifierConfig{Secrets: []string{"WHSEC_" + hush}}, "does not begin with whsec_"},
		{"API key", VerifierConfig{Secrets: []string{"sk_live_" + hush}}, "is an API key"},
		{"two in one", VerifierConfig{Secrets: []string{"whsec_" + hush + ",whsec_" + hush}}, "give each secret by itself"},
		{"newline within", VerifierConfig{Secrets: []string{"whsec_" + hush + "\nwhsec_" + hush}}, "give each secret by itself"},
		{"quotes", VerifierConfig{Secrets: []string{`"whsec_` + hush + `"`}}, "does not begin with whsec_"},
		{"negative tolerance", VerifierConfig{Secrets: []string{"whsec_a"}, Tolerance: -1}, "tolerance"},
		{"huge tolerance", VerifierConfig{Secrets: []string{"whsec_a"}, Tolerance: 24 * time.Hour}, "tolerance"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, err := NewVerifier(tt.config)
			if err == nil || v != nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is %q, want it to say %q", err, tt.want)
			}
			if strings.Contains(err.Error(), hush) {
				t.Errorf("the error shows the secret: %v", err)
			}
		})
	}
}

func TestVerifierNeverPrintsItsSecrets(t *testing.T) {
	v := verifier(t, "whsec_hush")
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("", "v", v)
	slog.New(slog.NewTextHandler(&log, nil)).Info("", "v", v)
	all := log.String()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		all += fmt.Sprintf(verb, v)
	}
	if strings.Contains(all, "hush") || strings.Contains(all, hex.EncodeToString([]byte("hush"))) {
		t.Errorf("a secret was printed: %s", all)
	}
}

func verifier(t testing.TB, secrets ...string) *Verifier {
	t.Helper()
	v, err := NewVerifier(VerifierConfig{Secrets: secrets, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// signature is the header that Stripe would send.
func signature(body, secret string, at time.Time) string {
	return webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: []byte(body), Secret: secret, Timestamp: at}).Header
}
