package console

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/keytill/keytill/fulfillment"
)

// pageSize is how many entries a list shows at once.
const pageSize = 50

// A place is where a part of a list ended; the next part begins there, so no page reads more than it shows.
type place struct {
	List string    `json:"l"`
	At   time.Time `json:"t,omitzero"`
	ID   string    `json:"i,omitempty"`
	N    int64     `json:"n,omitempty"`

	Before int64 `json:"b,omitempty"` // entries shown before, where the list has no end to be seen
}

func (p place) String() string {
	text, _ := json.Marshal(p) // always can be
	return base64.RawURLEncoding.EncodeToString(text)
}

// after reads where a list goes on; the zero place is its beginning.
func after(r *http.Request, list string) (at place, err error) {
	cursor := r.FormValue("after")
	if cursor == "" {
		return at, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || json.Unmarshal(text, &at) != nil || at.List != list {
		return place{}, errCursor
	}
	return at, nil
}

func (p place) order() *fulfillment.OrderPlace {
	if p.ID == "" {
		return nil
	}
	return &fulfillment.OrderPlace{At: p.At, ID: p.ID}
}

// cut takes the one entry too many off a part of a list, by which it is known that there are more.
func cut[T any](found []T, at func(last T) place) (part []T, next string) {
	if len(found) <= pageSize {
		return found, ""
	}
	return found[:pageSize], at(found[pageSize-1]).String()
}

// with is the address of a list's next part.
func with(path string, query url.Values, next string) string {
	if next == "" {
		return ""
	}
	q := url.Values{"after": {next}}
	for name, values := range query {
		if name != "after" && name != "done" {
			q[name] = values
		}
	}
	return path + "?" + q.Encode()
}
