package stripeapi

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// answered is what whole makes of an answer.
func answered(t *testing.T, status int, body string, length int64) (string, error) {
	t.Helper()
	w := whole{roundTrip(func(*http.Request) *http.Response {
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), ContentLength: length}
	})}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://stripe.invalid/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := w.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }() // it is in memory
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

func TestOnlyWholeAnswersOfStripesAreHandedOn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status int
		body   string
		want   error
	}{
		"an object":          {200, " {\"id\": \"cs_1\"}\n", nil},
		"half an object":     {200, `{"id": "cs_1"`, errUnreadable},
		"nothing":            {200, "", errUnreadable},
		"null":               {200, "null", errUnreadable},
		"an array":           {200, "[{}]", errUnreadable},
		"a page":             {200, "<html>", errUnreadable},
		"what is too large":  {200, `{"id": "` + strings.Repeat("x", maxAnswer) + `"}`, errTooLarge},
		"an error of theirs": {404, `{"error": {"type": "invalid_request_error"}}`, nil},
	} {
		for _, length := range []int64{int64(len(tt.body)), -1} {
			got, err := answered(t, tt.status, tt.body, length)
			if !errors.Is(err, tt.want) || err == nil && got != tt.body {
				t.Errorf("%s of length %d: error %v, want %v", name, length, err, tt.want)
			}
		}
	}
}

// Whatever a gateway says for people, its status is kept, and its text is not shown as if it were Stripe's.
func TestAGatewaysErrorKeepsItsStatus(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"<html>no</html>", "", `{"error": "no"}`, `{"message": "no"}`, "null"} {
		got, err := answered(t, http.StatusBadGateway, body, int64(len(body)))
		if err != nil || !tellsError([]byte(got)) || strings.Contains(got, "no<") {
			t.Errorf("%q became %q, error %v", body, got, err)
		}
	}
}
