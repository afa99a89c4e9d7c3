package stripeapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// Who stands in Stripe's place must not send the key's requests elsewhere.
func TestARedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		elsewhere.Add(1)
		_, _ = w.Write([]byte(`{"id": "cs_1", "object": "checkout.session", "mode": "payment"}`))
	}))
	defer other.Close()
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		stripe := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", other.URL+r.URL.RequestURI())
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{}`)) // JSON, so that nothing but the status speaks against it
		}))
		client, err := New(Config{Key: "sk_test_x", URL: stripe.URL, RetryWait: time.Millisecond,
			Account: func(context.Context, string) (string, error) { return "", nil }})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = client.Payment(t.Context(), "default", "cs_1") // what is made of the answer is another matter
		stripe.Close()
	}
	if n := elsewhere.Load(); n > 0 {
		t.Errorf("%d requests went elsewhere", n)
	}
}
