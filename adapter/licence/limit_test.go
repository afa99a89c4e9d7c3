package licence

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/keytill/keytill/adapter/limit"
	"github.com/keytill/keytill/inventory"
)

// unknown knows no key.
type unknown struct{ Keys }

// Verify knows no key.
func (unknown) Verify(context.Context, string, string, string) (inventory.Verified, error) {
	return inventory.Verified{Verdict: inventory.Unknown}, nil
}

// Who has a token could else try keys out as fast as the line carries them.
func TestATokenAsksSoOftenAMinute(t *testing.T) {
	t.Parallel()
	now := time.Now()
	h := &Handler{Keys: unknown{}, Limit: limit.New(3, func() time.Time { return now }), Logger: slog.New(slog.DiscardHandler)}
	ask := func() int {
		w := httptest.NewRecorder()
		h.Verify(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/keys/verify?key=x", nil))
		return w.Code
	}
	for n, want := range []int{200, 200, 200, 429, 429} {
		if got := ask(); got != want {
			t.Errorf("question %d is answered with %d, want %d", n+1, got, want)
		}
	}
	now = now.Add(time.Minute)
	if got := ask(); got != 200 {
		t.Errorf("a minute later: %d", got)
	}
}
