package webhooks

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/time/rate"
)

// Inbox keeps events. Record returns nil once the event is durable, also for one that was recorded before; an error makes
// Stripe send it again. Its ctx ends after ten seconds, and not when Stripe hangs up.
type Inbox interface {
	Record(ctx context.Context, ev Event) error
}

// What became of a request, as told to [Config.OnOutcome].
const (
	OutcomeRecorded     = "recorded"      // 200, new or known
	OutcomeWrongMethod  = "wrong_method"  // 405
	OutcomeTooLarge     = "too_large"     // 413
	OutcomeCutOff       = "cut_off"       // 400, the body did not come in whole or in time
	OutcomeNotAuthentic = "not_authentic" // 400
	OutcomeUnreadable   = "unreadable"    // 400, signed by Stripe and yet no event
	OutcomeNotRecorded  = "not_recorded"  // 503
)

const (
	defaultMaxBody = 1 << 20
	usualBody      = 16 << 10
	readTimeout    = 10 * time.Second
	recordTimeout  = 10 * time.Second
	retryAfter     = "30" // seconds
)

// Config is what a handler needs. Verifier and Inbox are required.
type Config struct {
	Verifier *Verifier
	Inbox    Inbox
	Logger   *slog.Logger // nil logs nothing

	// MaxBody is the largest body in bytes that is read; 0 is 1 MiB.
	MaxBody int64

	// OnOutcome, if set, is called once for each request, just before the answer, with one of the Outcome constants. It must
	// be quick and safe for concurrent use: it is there to count.
	OnOutcome func(outcome string)
}

type handler struct {
	Config
	refusals *rate.Limiter // those that are answered at once
}

// Bodies that are not authentic. Stripe sends none, and who sets an endpoint up a few, which are told at once. A flood of
// them waits for its answers, so that it cannot ask as fast as it likes and take the machine from those who are let in.
const (
	refusalsASecond = 20
	refusalsAtOnce  = 100
	refusalWaits    = 250 * time.Millisecond
)

// NewHandler makes the endpoint that Stripe posts to. It answers:
//
//	200  the event is recorded, now or before
//	400  the body is not authentic, is no event, or did not come in whole
//	405  not a POST
//	413  the body is too large
//	503  the event could not be recorded; Stripe sends it again, for up to three days
//
// The path is the router's business. So is the time for the request's head; for the body there are ten seconds, where the
// connection can be told (they take the place of the server's own read timeout). The Content-Type is not looked at: what
// counts is the signature over the bytes.
func NewHandler(c Config) (http.Handler, error) {
	switch {
	case c.Verifier == nil:
		return nil, errors.New("webhooks: Config.Verifier is required: make one with NewVerifier")
	case c.Inbox == nil:
		return nil, errors.New("webhooks: Config.Inbox is required")
	case c.MaxBody < 0:
		return nil, errors.New("webhooks: Config.MaxBody is negative: leave it at 0 for 1 MiB")
	}
	if c.MaxBody == 0 {
		c.MaxBody = defaultMaxBody
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.OnOutcome == nil {
		c.OnOutcome = func(string) {}
	}
	return &handler{Config: c, refusals: rate.NewLimiter(refusalsASecond, refusalsAtOnce)}, nil
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := h.handle(w, r)
	h.OnOutcome(a.outcome)
	for key, value := range a.header {
		w.Header().Set(key, value)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(a.status)
	io.WriteString(w, a.text+"\n") // nobody to tell if it fails: Stripe has hung up, and counts that as a failure
}

// answer is what goes back. Its text names the rule that was broken and nothing of what is inside.
type answer struct {
	status  int
	text    string
	outcome string
	header  map[string]string
}

func (h *handler) handle(w http.ResponseWriter, r *http.Request) answer {
	if r.Method != http.MethodPost {
		return answer{http.StatusMethodNotAllowed, "only POST", OutcomeWrongMethod, map[string]string{"Allow": http.MethodPost}}
	}
	body, err := h.read(w, r)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		h.Logger.WarnContext(r.Context(), "webhook refused: body too large", "limit", h.MaxBody)
		return answer{http.StatusRequestEntityTooLarge, "the body is too large", OutcomeTooLarge, nil}
	case err != nil:
		h.Logger.WarnContext(r.Context(), "webhook refused: body not read", "error", err)
		return answer{http.StatusBadRequest, "the body did not come in whole", OutcomeCutOff, nil}
	}
	if err := h.authentic(r, body); err != nil {
		if h.refusals.Allow() {
			h.Logger.WarnContext(r.Context(), "webhook refused: not authentic", "error", err)
		} else {
			wait(r.Context(), refusalWaits)
		}
		return answer{http.StatusBadRequest, reason(err), OutcomeNotAuthentic, nil}
	}
	ev, err := Decode(body)
	if err != nil {
		// Signed by Stripe and yet no event: either Stripe has changed, or a secret is known to somebody else.
		h.Logger.ErrorContext(r.Context(), "webhook refused: signed but not readable", "error", err)
		return answer{http.StatusBadRequest, "the body is not a Stripe event", OutcomeUnreadable, nil}
	}
	if err := h.record(r, ev); err != nil {
		h.Logger.ErrorContext(r.Context(), "webhook not recorded, Stripe will send it again",
			"event", ev.ID, "type", ev.Type, "account", ev.Account, "error", err)
		return answer{http.StatusServiceUnavailable, "not recorded, send it again", OutcomeNotRecorded,
			map[string]string{"Retry-After": retryAfter}}
	}
	h.Logger.DebugContext(r.Context(), "webhook recorded", "event", ev.ID, "type", ev.Type, "account", ev.Account,
		"payment", ev.Payment)
	return answer{http.StatusOK, "ok", OutcomeRecorded, nil}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done(): // the sender has hung up
	}
}

// read reads the whole body. The deadline is for a sender that stops half way. It is lifted only when all is read: until
// then the server may still want to read the rest, and after that it reads on in the background to notice a hang-up.
func (h *handler) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	rc := http.NewResponseController(w)
	bounded := rc.SetReadDeadline(time.Now().Add(readTimeout)) == nil // if not, the server's own timeout must do
	if r.ContentLength > h.MaxBody {
		return nil, &http.MaxBytesError{Limit: h.MaxBody}
	}
	// Room for the usual event at once; who says that a large one comes must send it before it gets more.
	body := bytes.NewBuffer(make([]byte, 0, bytes.MinRead+min(max(r.ContentLength, 0), usualBody)))
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, h.MaxBody))
	if err == nil && bounded {
		err = rc.SetReadDeadline(time.Time{})
	}
	return body.Bytes(), err
}

// authentic wants exactly one signature header. Stripe sends one, with several signatures in it if need be; two are the
// work of somebody in between, and joining them would mix the time of one with the signature of the other.
func (h *handler) authentic(r *http.Request, body []byte) error {
	headers := r.Header.Values("Stripe-Signature")
	switch len(headers) {
	case 0:
		return ErrNotSigned
	case 1:
		return h.Verifier.Verify(body, headers[0])
	default:
		return ErrBadSignature
	}
}

// record goes on when Stripe hangs up. A record that is given up half way is only a retry, but a database that is slow would
// then throw away its work for every event at once, and be asked for it again; the timeout bounds it instead.
func (h *handler) record(r *http.Request, ev Event) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), recordTimeout)
	defer cancel()
	return h.Inbox.Record(ctx, ev)
}

// reason is the text for a sender whose body is not authentic. It helps an operator who sets up an endpoint, and tells
// nothing about a secret: which one was tried, or how far a clock is off.
func reason(err error) string {
	switch {
	case errors.Is(err, ErrNotSigned):
		return "the Stripe-Signature header is missing"
	case errors.Is(err, ErrTooOld):
		return "the signature is too old"
	case errors.Is(err, ErrFromFuture):
		return "the signature is from the future"
	default:
		return "the signature does not match"
	}
}
