package webhooks

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v76/webhook"
)

// Why a body is not authentic. [Verifier.Verify] wraps one of them.
var (
	ErrNotSigned    = errors.New("webhooks: no Stripe-Signature header")
	ErrBadSignature = errors.New("webhooks: signature matches no secret")
	ErrTooOld       = errors.New("webhooks: signed too long ago")
	ErrFromFuture   = errors.New("webhooks: signed in the future")
)

const (
	defaultTolerance = 5 * time.Minute
	maxTolerance     = time.Hour

	secretPrefix = "whsec_"
)

// VerifierConfig says whose signature counts.
type VerifierConfig struct {
	// Secrets are the signing secrets (whsec_…) of the endpoints that post here. There are several during a rotation,
	// when Stripe signs with the old and the new for up to 24 hours, and where a platform has one endpoint for its own
	// events and one for those of its connected accounts.
	Secrets []string

	// Tolerance is how far the time of signing may be from now, both ways. 0 is 5 minutes, as Stripe advises; more than
	// an hour is refused, since it lets a recorded request be played again for that long.
	Tolerance time.Duration

	Now func() time.Time // nil is time.Now
}

// Verifier tells whether Stripe sent a body. Make one with [NewVerifier]; the zero Verifier accepts nothing.
type Verifier struct {
	secrets   []string
	tolerance time.Duration
	now       func() time.Time
}

// NewVerifier checks the configuration. Its errors say what to do and never show a secret.
//
// It is strict since a wrong secret is found out late, by events that do not come in, and an empty one is worse: stripe-go
// takes it for a key like any other, and then everybody can sign.
func NewVerifier(c VerifierConfig) (*Verifier, error) {
	v := &Verifier{tolerance: c.Tolerance, now: c.Now}
	if v.tolerance == 0 {
		v.tolerance = defaultTolerance
	}
	if v.now == nil {
		v.now = time.Now
	}
	if v.tolerance < 0 || v.tolerance > maxTolerance {
		return nil, fmt.Errorf("webhooks: tolerance %v is not between 0 and %v: leave it at 0 for %v",
			v.tolerance, maxTolerance, defaultTolerance)
	}
	if len(c.Secrets) == 0 {
		return nil, errors.New("webhooks: no signing secret: copy it from the endpoint's page in Stripe's dashboard (whsec_…)")
	}
	for i, s := range c.Secrets {
		s = strings.TrimSpace(s) // a secret read from a file ends with a newline, and would match nothing
		if err := checkSecret(s); err != nil {
			return nil, fmt.Errorf("webhooks: signing secret %d of %d %w", i+1, len(c.Secrets), err)
		}
		v.secrets = append(v.secrets, s)
	}
	return v, nil
}

func checkSecret(s string) error {
	switch {
	case s == "":
		return errors.New("is empty: remove it, or copy the endpoint's secret from Stripe's dashboard (whsec_…)")
	case strings.HasPrefix(s, "sk_") || strings.HasPrefix(s, "rk_"):
		return errors.New("is an API key: give the endpoint's signing secret instead (whsec_…)")
	case !strings.HasPrefix(s, secretPrefix):
		return errors.New("does not begin with whsec_: copy the endpoint's signing secret from Stripe's dashboard")
	case s == secretPrefix:
		return errors.New("has nothing after whsec_: copy the whole secret from Stripe's dashboard")
	case strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == ',' }):
		return errors.New("holds a character that no secret has, such as a space or a comma: give each secret by itself")
	}
	return nil
}

// Format keeps the secrets out of whatever a Verifier is printed to, with any verb.
func (v *Verifier) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "webhooks.Verifier(%d secrets, tolerance %v)", len(v.secrets), v.tolerance)
}

// Verify tells whether one of the secrets signed exactly these bytes, not too long ago and not in the future. header is
// the value of Stripe-Signature as it came. The error is one of the package's four.
//
// The time is checked here and not by stripe-go, which looks at the system's clock and only at age: to it a signature of
// the year 2100 is fresh until then. It is checked after the signature, so that ErrTooOld and ErrFromFuture always
// speak of a request that Stripe signed, and point to a clock that is wrong or to a replay.
func (v *Verifier) Verify(body []byte, header string) error {
	if strings.TrimSpace(header) == "" {
		return ErrNotSigned
	}
	signed, err := signedAt(header)
	if err != nil {
		return err
	}
	if err := v.match(body, header); err != nil {
		return err
	}
	now := v.now()
	if signed.Before(now.Add(-v.tolerance)) {
		return fmt.Errorf("%w: at %v, it is %v", ErrTooOld, signed.UTC(), now.UTC())
	}
	if signed.After(now.Add(v.tolerance)) {
		return fmt.Errorf("%w: at %v, it is %v", ErrFromFuture, signed.UTC(), now.UTC())
	}
	return nil
}

// match tries one secret after the other. Any other error than "this one did not sign it" is about the header and would be
// the same for every secret.
func (v *Verifier) match(body []byte, header string) error {
	for _, secret := range v.secrets {
		err := webhook.ValidatePayloadIgnoringTolerance(body, header, secret)
		if err == nil {
			return nil
		}
		if !errors.Is(err, webhook.ErrNoValidSignature) {
			return fmt.Errorf("%w: %w", ErrBadSignature, err)
		}
	}
	return ErrBadSignature
}

// signedAt reads the time of a header like t=1495999758,v1=…,v1=…. There must be exactly one: stripe-go computes the
// signature with the last, and without any with that of the year 1, and what it signs must be what is checked here.
func signedAt(header string) (time.Time, error) {
	var values []string
	for part := range strings.SplitSeq(header, ",") {
		if value, ok := strings.CutPrefix(part, "t="); ok {
			values = append(values, value)
		}
	}
	if len(values) != 1 {
		return time.Time{}, fmt.Errorf("%w: the header has %d times", ErrBadSignature, len(values))
	}
	seconds, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: the header's time is not a number", ErrBadSignature)
	}
	return time.Unix(seconds, 0), nil
}
