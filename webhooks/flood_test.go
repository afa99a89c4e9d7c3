package webhooks

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A flood of bodies that are not authentic waits for its answers and leaves the log alone; an authentic one does not wait.
func TestFloodOfRefusalsWaitsForItsAnswers(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	in := &inbox{}
	h := handlerOf(t, Config{Inbox: in, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	post := func(ctx context.Context, signature string) (status int, took time.Duration) {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body1))
		r.Header.Set("Stripe-Signature", signature)
		w := httptest.NewRecorder()
		begin := time.Now()
		h.ServeHTTP(w, r)
		return w.Code, time.Since(begin)
	}
	bad := signature(body1, "whsec_c", noon)
	for range 2 * refusalsAtOnce { // of those who have hung up: none waits
		gone, hangUp := context.WithCancel(t.Context())
		hangUp()
		if status, _ := post(gone, bad); status != http.StatusBadRequest {
			t.Fatalf("answered with %d", status)
		}
	}
	if lines := strings.Count(log.String(), "not authentic"); lines < refusalsAtOnce || lines >= 2*refusalsAtOnce {
		t.Errorf("%d lines in the log for %d refusals, want at most those that are answered at once", lines, 2*refusalsAtOnce)
	}
	if status, took := post(t.Context(), bad); status != http.StatusBadRequest || took < refusalWaits {
		t.Errorf("in the flood: %d after %v, want 400 after %v", status, took, refusalWaits)
	}
	if status, _ := post(t.Context(), signature(body1, "whsec_a", noon)); status != http.StatusOK || len(in.recorded()) != 1 {
		t.Errorf("an authentic event is answered with %d and %d are recorded, want 200 and 1", status, len(in.recorded()))
	}
}
