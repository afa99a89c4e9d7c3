package api

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"time"

	"github.com/keytill/keytill/fulfillment"
)

var errCursor = errors.New("the cursor is not one of this list: use the `next` of an answer, or begin without one")

// Page asks for a part of a list. A cursor says where the last part ended, not how many there were before: what is added or
// taken away meanwhile neither repeats an entry nor hides one.
type Page struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"How many entries."`
	Cursor string `query:"cursor" maxLength:"500" doc:"The next of the answer before; the list's beginning without one."`
}

// A place is where a part of a list ended. Its form is nobody's business but this package's.
type place struct {
	List string    `json:"l"`
	At   time.Time `json:"t,omitzero"`
	ID   string    `json:"i,omitempty"`
	N    int64     `json:"n,omitempty"`
}

func (p place) cursor() string {
	text, _ := json.Marshal(p) // always can be
	return base64.RawURLEncoding.EncodeToString(text)
}

// after reads where a part begins; the zero place is the beginning.
func (p Page) after(list string) (place, error) {
	var at place
	if p.Cursor == "" {
		return at, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(p.Cursor)
	if err != nil || json.Unmarshal(text, &at) != nil || at.List != list {
		return place{}, errCursor
	}
	return at, nil
}

// afterOrder reads where a part of a list of orders begins.
func (p Page) afterOrder(list string) (*fulfillment.OrderPlace, error) {
	at, err := p.after(list)
	if err != nil || at.ID == "" {
		return nil, err
	}
	return &fulfillment.OrderPlace{At: at.At, ID: at.ID}, nil
}

// List is a part of a list.
type List[T any] struct {
	Data []T    `json:"data"`
	Next string `json:"next,omitempty" doc:"The cursor of the next part; none at the end."`
}

// listOf makes the answer from one entry more than was asked for, by which it knows whether there are more.
func listOf[T any](found []T, limit int, at func(last T) place) *ListOutput[T] {
	out := &ListOutput[T]{Body: List[T]{Data: found}}
	if len(found) > limit {
		out.Body.Data = found[:limit]
		out.Body.Next = at(found[limit-1]).cursor()
	}
	if out.Body.Data == nil {
		out.Body.Data = []T{}
	}
	return out
}

// ListOutput is the answer with a part of a list.
type ListOutput[T any] struct{ Body List[T] }

// Output is an answer.
type Output[T any] struct{ Body T }
