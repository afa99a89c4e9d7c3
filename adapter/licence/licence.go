// Package licence answers licence servers and the vendor's own software: whether a key may be used, and which keys that
// were sold may not any more. This is what makes a revoked key stop working.
//
//	POST /v1/keys/verify   {"key": "ABCD-1234", "sku": "editor"}       sku may be left out
//	GET  /v1/keys/verify?key=ABCD-1234&sku=editor
//	     {"status": "valid", "key": "key_17", "sku": "editor"}
//	GET  /v1/keys/changes?after=CURSOR&limit=100
//	     {"changes": [{"key": "key_17", "sku": "editor", "status": "revoked", "at": …}], "next": CURSOR, "more": false}
//
// A cursor is good for as long as the database lives. If that was restored from a backup, the answer to an older cursor is
// 410, a problem of type urn:keytill:problem:cursor_gone: the server forgets its list and reads the feed from its beginning.
//
// POST is the better one: what is in a URL ends up in logs. An answer has the same fields and the status 200 whatever is
// known of the key, and never its text. A server that keeps its own list remembers the name (key_17) that it got for a
// key, and applies the feed to it: keytill's fingerprints of keys are of no use without its keyset, so the feed has none.
package licence

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/adapter/limit"
	"github.com/keytill/keytill/adapter/problem"
	"github.com/keytill/keytill/inventory"
)

// Keys is what the answers are read from.
type Keys interface {
	Verify(ctx context.Context, merchant, text, sku string) (inventory.Verified, error)
	Changes(ctx context.Context, merchant, after string, most int) ([]inventory.KeyChange, string, error)
}

// Handler answers.
type Handler struct {
	Keys   Keys
	Limit  *limit.Limiter // by token
	Logger *slog.Logger
}

// PerMinute is how many requests a token may make in a minute: more than a licence server needs that keeps a list, and
// too few to try keys out.
const PerMinute = 600

const (
	maxBody    = 8 << 10
	maxKey     = 4 << 10
	maxChanges = 1000
)

// Verify answers whether a key may be used.
func (h *Handler) Verify(w http.ResponseWriter, r *http.Request) {
	if !h.allow(w, r) {
		return
	}
	ask := struct {
		Key string `json:"key"`
		SKU string `json:"sku"`
	}{r.URL.Query().Get("key"), r.URL.Query().Get("sku")}
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&ask); err != nil {
			problem.Write(w, http.StatusBadRequest, "invalid", `the body must be JSON: {"key": "…"}`)
			return
		}
	}
	if ask.Key == "" || len(ask.Key) > maxKey {
		problem.Write(w, http.StatusBadRequest, "invalid", "say which key, of at most 4096 bytes")
		return
	}
	found, err := h.Keys.Verify(r.Context(), access.Of(r.Context()).Merchant, ask.Key, ask.SKU)
	if err != nil {
		h.fail(w, r, "verify a key", err)
		return
	}
	answer(w, found)
}

// Changes answers what became of sold keys since a cursor.
func (h *Handler) Changes(w http.ResponseWriter, r *http.Request) {
	if !h.allow(w, r) {
		return
	}
	most := 100
	if text := r.URL.Query().Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxChanges {
			problem.Write(w, http.StatusBadRequest, "invalid", "limit must be a number from 1 to 1000")
			return
		}
		most = n
	}
	changes, next, err := h.Keys.Changes(r.Context(), access.Of(r.Context()).Merchant, r.URL.Query().Get("after"), most)
	switch {
	case errors.Is(err, inventory.ErrCursorGone):
		problem.Write(w, http.StatusGone, "cursor_gone", err.Error())
		return
	case errors.Is(err, inventory.ErrCursor):
		problem.Write(w, http.StatusBadRequest, "bad_cursor", "after must be the \"next\" of an earlier answer, or left out")
		return
	case err != nil:
		h.fail(w, r, "list changes of keys", err)
		return
	}
	answer(w, struct {
		Changes []inventory.KeyChange `json:"changes"`
		Next    string                `json:"next"`
		More    bool                  `json:"more"`
	}{append([]inventory.KeyChange{}, changes...), next, len(changes) == most})
}

func (h *Handler) allow(w http.ResponseWriter, r *http.Request) bool {
	if h.Limit.Allow(access.Of(r.Context()).Name) {
		return true
	}
	w.Header().Set("Retry-After", "1")
	problem.Write(w, http.StatusTooManyRequests, "too_many_requests", "this token has asked too often: keep a list, and follow /v1/keys/changes")
	return false
}

func (h *Handler) fail(w http.ResponseWriter, r *http.Request, what string, err error) {
	h.Logger.ErrorContext(r.Context(), "could not "+what, "error", err)
	problem.Write(w, http.StatusServiceUnavailable, "busy", "try again in a moment")
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(value) // who has gone needs no answer
}
