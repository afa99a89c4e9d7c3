package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

const (
	idempotencyHeader = "Idempotency-Key"
	replayedHeader    = "Idempotent-Replayed"
	maxRequestKey     = 200

	answersKept = 24 * time.Hour

	// inFlight is how long a request can be under way: longer than any is let run. After that its process has died.
	inFlight = 2 * callTimeout
)

const (
	// Of two requests with one key, one inserts the row; the other waits for it and inserts nothing. A row whose time is up
	// is as if it were not there. Lock: the row. Index: api_requests_pkey.
	claimRequest = `
INSERT INTO keytill.api_requests AS r (merchant_id, actor, request_key, request_hash, begun_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (merchant_id, actor, request_key) DO UPDATE
   SET request_hash = excluded.request_hash, begun_at = excluded.begun_at, expires_at = excluded.expires_at,
       done_at = NULL, status = NULL, content_type = NULL, body = NULL
 WHERE r.expires_at <= excluded.begun_at
    OR ($7 AND r.done_at IS NULL AND r.begun_at <= $8 AND r.request_hash = excluded.request_hash)`

	// Index: api_requests_pkey.
	readRequest = `
SELECT request_hash, begun_at, done_at IS NOT NULL, coalesce(status, 0), coalesce(content_type, ''), body
  FROM keytill.api_requests WHERE merchant_id = $1 AND actor = $2 AND request_key = $3`

	// The time of its beginning says that the row is still this request's. Index: api_requests_pkey.
	finishRequest = `
UPDATE keytill.api_requests SET done_at = $5, status = $6, content_type = $7, body = $8
 WHERE merchant_id = $1 AND actor = $2 AND request_key = $3 AND begun_at = $4 AND done_at IS NULL`

	forgetRequest = `
DELETE FROM keytill.api_requests WHERE merchant_id = $1 AND actor = $2 AND request_key = $3 AND begun_at = $4 AND done_at IS NULL`

	// A few at a time, by whoever writes the next. Index: api_requests_expired.
	forgetExpired = `
DELETE FROM keytill.api_requests
 WHERE merchant_id = $1 AND (actor, request_key) IN (
       SELECT actor, request_key FROM keytill.api_requests
        WHERE merchant_id = $1 AND expires_at <= $2 ORDER BY expires_at LIMIT 20 FOR UPDATE SKIP LOCKED)
   AND expires_at <= $2`
)

// A request is one that carries an Idempotency-Key.
type request struct {
	merchant, actor, key string
	hash                 []byte
	begun                time.Time
}

// answered is what was kept of a request.
type answered struct {
	hash        []byte
	begun       time.Time
	done        bool
	status      int
	contentType string
	body        []byte
}

// once does a request that carries an Idempotency-Key one time: sent again, it gets the answer that the first one got. With
// another body it is refused, and beside the first one, too.
func (a *API) once(o operation, maxBody int64) func(huma.Context, func(huma.Context)) {
	return func(hc huma.Context, next func(huma.Context)) {
		r, w := humachi.Unwrap(hc)
		key := r.Header.Get(idempotencyHeader)
		if key == "" {
			next(hc)
			return
		}
		if len(key) > maxRequestKey {
			a.refuse(hc, http.StatusUnprocessableEntity, "bad_idempotency_key", "an Idempotency-Key has at most 200 characters")
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			var tooLarge *http.MaxBytesError
			if errors.As(err, &tooLarge) {
				a.refuse(hc, http.StatusRequestEntityTooLarge, "too_large", "the request is too large: at most "+strconv.FormatInt(maxBody, 10)+" bytes")
				return
			}
			a.refuse(hc, http.StatusBadRequest, "cut_off", "the request did not come in whole")
			return
		}
		token := caller(hc.Context())
		req := request{merchant: token.Merchant, actor: token.Name, key: key, hash: hashOf(r, body), begun: a.Now().UTC().Truncate(time.Microsecond)}
		mine, err := a.begin(hc.Context(), req, o.repeat == repeatSafe)
		if err != nil {
			a.Logger.ErrorContext(hc.Context(), "could not note an Idempotency-Key", "error", err)
			a.refuse(hc, http.StatusServiceUnavailable, "busy", "the request was not begun: send it again")
			return
		}
		if !mine {
			a.repeat(hc, req)
			return
		}
		again := r.Clone(r.Context())
		again.Body = io.NopCloser(bytes.NewReader(body))
		a.keep(hc, req, w, func(w http.ResponseWriter) {
			inner := humachi.NewContext(hc.Operation(), again, w)
			next(huma.WithContext(inner, hc.Context()))
		})
	}
}

// hashOf is of what makes a request the same: what is asked for, and with which words.
func hashOf(r *http.Request, body []byte) []byte {
	hash := sha256.New()
	for _, part := range []string{r.Method, r.URL.RequestURI(), strconv.Itoa(len(body))} {
		io.WriteString(hash, part+"\n")
	}
	hash.Write(body)
	return hash.Sum(nil)
}

// begin reports whether a request is to be done: it is the first with its key, or the first one's process died before
// there was an answer and it may be done again.
func (a *API) begin(ctx context.Context, req request, again bool) (mine bool, err error) {
	if _, err := a.DB.Exec(ctx, forgetExpired, req.merchant, req.begun); err != nil {
		return false, err
	}
	tag, err := a.DB.Exec(ctx, claimRequest, req.merchant, req.actor, req.key, req.hash, req.begun, req.begun.Add(answersKept),
		again, req.begun.Add(-inFlight))
	return err == nil && tag.RowsAffected() == 1, err
}

// repeat answers a request that was made before.
func (a *API) repeat(hc huma.Context, req request) {
	ctx := hc.Context()
	var first answered
	err := a.DB.QueryRow(ctx, readRequest, req.merchant, req.actor, req.key).
		Scan(&first.hash, &first.begun, &first.done, &first.status, &first.contentType, &first.body)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // it failed just now
		a.refuse(hc, http.StatusConflict, "under_way", "the first request with this Idempotency-Key has just failed: send it again")
	case err != nil:
		a.Logger.ErrorContext(ctx, "could not read what an Idempotency-Key stands for", "error", err)
		a.refuse(hc, http.StatusServiceUnavailable, "busy", "send the request again in a moment")
	case !bytes.Equal(first.hash, req.hash):
		a.refuse(hc, http.StatusUnprocessableEntity, "key_reused", "this Idempotency-Key was used for another request: make up a new one")
	case !first.done && first.begun.After(req.begun.Add(-inFlight)):
		hc.SetHeader("Retry-After", "1")
		a.refuse(hc, http.StatusConflict, "under_way", "the first request with this Idempotency-Key is under way: send it again in a moment")
	case !first.done:
		a.refuse(hc, http.StatusConflict, "unknown_outcome", "the first request with this Idempotency-Key was cut off, and whether it was done is not known: look at the order, then use a new key")
	default:
		_, w := humachi.Unwrap(hc)
		if first.contentType != "" {
			w.Header().Set("Content-Type", first.contentType)
		}
		w.Header().Set(replayedHeader, "true")
		w.WriteHeader(first.status)
		_, _ = w.Write(first.body) // who has gone needs no answer
	}
}

// keep does a request and keeps its answer. What failed here, and not by the request's own fault, is not kept: sent again,
// it is done again.
func (a *API) keep(hc huma.Context, req request, w http.ResponseWriter, do func(http.ResponseWriter)) {
	recorder := &recorder{ResponseWriter: w, status: http.StatusOK}
	ended := false
	defer func() {
		// Also after a panic, and when who asked has gone: what was done is done.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(hc.Context()), callTimeout)
		defer cancel()
		var err error
		if ended && recorder.status < http.StatusInternalServerError {
			err = a.store(ctx, finishRequest, req, a.Now(), recorder.status, w.Header().Get("Content-Type"), recorder.body.Bytes())
		} else {
			err = a.store(ctx, forgetRequest, req)
		}
		if err != nil {
			a.Logger.ErrorContext(ctx, "could not keep the answer to an Idempotency-Key", "error", err)
		}
	}()
	do(recorder)
	ended = true
}

func (a *API) store(ctx context.Context, query string, req request, args ...any) error {
	return pg.InTx(ctx, a.DB, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, query, append([]any{req.merchant, req.actor, req.key, req.begun}, args...)...)
		return err
	})
}

// recorder passes an answer on and keeps a copy.
type recorder struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// WriteHeader notes the status.
func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Write notes what is written.
func (r *recorder) Write(p []byte) (int, error) {
	r.body.Write(p)
	return r.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController through.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
