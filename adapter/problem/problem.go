// Package problem answers requests that fail, in one form: a problem document (RFC 9457).
package problem

import (
	"encoding/json"
	"net/http"
)

// A Document is what a failed request is answered with.
type Document struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

// Kind is the URI of a kind of problem. It names the problem to programs and leads nowhere.
func Kind(word string) string { return "urn:keytill:problem:" + word }

// Write answers a request with a problem of a kind. The detail is for the caller: nothing internal belongs in it.
func Write(w http.ResponseWriter, status int, word, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(Document{Type: Kind(word), Title: http.StatusText(status), Status: status, Detail: detail}) // who has gone needs no answer
}
