package logs

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func logger(to *bytes.Buffer) *slog.Logger {
	return New(slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})))
}

func TestLinesHaveWhatTheirContextKnowsOnce(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	log := logger(&text)
	outer := Begin(t.Context(), "request", "r-1")
	Note(outer, "order", "cs_1")
	inner := Begin(outer, "job", "settle")
	Note(inner, "order", "cs_2")
	log.InfoContext(context.Background(), "nothing is known")
	log.With("a", 1).InfoContext(outer, "outer")
	log.InfoContext(inner, "inner")
	log.InfoContext(inner, "says itself", "order", "cs_3")
	want := "level=INFO msg=\"nothing is known\"\nlevel=INFO msg=outer a=1 request=r-1 order=cs_1\n" +
		"level=INFO msg=inner request=r-1 job=settle order=cs_2\nlevel=INFO msg=\"says itself\" order=cs_3 request=r-1 job=settle\n"
	if text.String() != want {
		t.Errorf("the log is\n%swant\n%s", text.String(), want)
	}
	if New(log) != log {
		t.Error("a logger that knows already is wrapped again")
	}
}

func TestRequestsKeepANameThatIsOne(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	log := logger(&text)
	handler := Requests(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { log.InfoContext(r.Context(), "served") }))
	for sent, kept := range map[string]bool{"abcdefgh-1": true, "short": false, "line\nbreak-and-more": false, "": false, strings.Repeat("a", 65): false} {
		text.Reset()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set(RequestIDHeader, sent)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		id := w.Header().Get(RequestIDHeader)
		if id == "" || (id == sent) != kept || !strings.Contains(text.String(), "request="+id) {
			t.Errorf("%q becomes %q, and the log says %s", sent, id, text.String())
		}
	}
}
