package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/internal/logs"
)

// An operation is one route.
type operation struct {
	id     string
	method string
	path   string
	tag    string
	title  string
	about  string
	repeat repeat
	status int   // of an answer that is no error; 200 unless set
	body   int64 // the largest request; maxBody unless set
}

// repeat says what a second request with the same Idempotency-Key gets.
type repeat int

const (
	repeatFreely repeat = iota // a read, or something that is not to be kept: it is done again
	repeatSafe                 // the first one's answer; where its process died, it is done again, which changes nothing more
	repeatOnce                 // the first one's answer; where its process died, nobody knows, and it is not done again
)

// permissions say which roles may do what. A role has what those below it have, too (access.Role.May): support what a
// viewer has, admin everything. The list is complete, and a test walks it.
var permissions = map[string][]access.Role{
	"list-orders":      {access.Viewer},
	"search-orders":    {access.Viewer, access.Storefront}, // a storefront's page of its customer's orders
	"get-order":        {access.Viewer, access.Storefront},
	"get-history":      {access.Viewer},
	"settle-order":     {access.Support, access.Storefront},
	"retry-order":      {access.Support},
	"resend-order":     {access.Support, access.Storefront},
	"get-order-keys":   {access.Storefront},
	"reveal-keys":      {access.Support},
	"create-link":      {access.Support, access.Storefront},
	"end-links":        {access.Support},
	"revoke-key":       {access.Support},
	"replace-key":      {access.Support},
	"attribute-refund": {access.Support},
	"send-again":       {access.Support, access.Storefront},

	"reserve":             {access.Storefront},
	"release-reservation": {access.Storefront},

	"list-pools":       {access.Viewer, access.Storefront},
	"create-pool":      {access.Admin},
	"change-pool":      {access.Admin},
	"list-mappings":    {access.Viewer, access.Storefront},
	"set-mapping":      {access.Admin},
	"import-keys":      {access.Admin},
	"list-batches":     {access.Viewer},
	"set-batch-state":  {access.Admin},
	"get-stock":        {access.Viewer, access.Storefront},
	"list-findings":    {access.Viewer},
	"list-audit":       {access.Viewer},
	"start-sweep":      {access.Admin},
	"list-sweeps":      {access.Viewer},
	"verify-key":       {access.Verify},
	"list-key-changes": {access.Verify},
}

func may(role access.Role, id string) bool {
	return slices.ContainsFunc(permissions[id], role.May)
}

// add registers an operation. Its errors become problem documents by the table of problems.
func add[I, O any](a *API, o operation, do func(ctx context.Context, in *I) (*O, error)) {
	op := a.describe(o)
	op.Middlewares = huma.Middlewares{a.admit(o.id)}
	if o.repeat != repeatFreely {
		op.Middlewares = append(op.Middlewares, a.once(o, op.MaxBodyBytes))
	}
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := do(ctx, in)
		if err != nil {
			return nil, a.problem(ctx, err)
		}
		return out, nil
	})
}

func (a *API) describe(o operation) huma.Operation {
	roles := make([]string, len(permissions[o.id]))
	for i, role := range permissions[o.id] {
		roles[i] = string(role)
	}
	op := huma.Operation{OperationID: o.id, Method: o.method, Path: o.path, Tags: []string{o.tag}, Summary: o.title,
		Description:   strings.TrimSpace(o.about + "\n\nFor tokens of role " + strings.Join(roles, " or ") + ", and those that include it."),
		DefaultStatus: o.status, MaxBodyBytes: o.body, BodyReadTimeout: callTimeout,
		Errors:   []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusInternalServerError},
		Security: []map[string][]string{{bearer: {}}}}
	if op.MaxBodyBytes == 0 {
		op.MaxBodyBytes = maxBody
	}
	if o.repeat != repeatFreely {
		op.Errors = append(op.Errors, http.StatusConflict)
		op.Parameters = append(op.Parameters, &huma.Param{Name: idempotencyHeader, In: "header",
			Description: "Up to 200 characters that name this request: sent again, it is not done again and gets the same answer.",
			Schema:      &huma.Schema{Type: huma.TypeString, MaxLength: ptr(maxRequestKey)}})
	}
	return op
}

func ptr[T any](v T) *T { return &v }

type callerKey struct{}

// caller is whose token a request came with.
func caller(ctx context.Context) access.Token {
	token, _ := ctx.Value(callerKey{}).(access.Token)
	return token
}

// admit lets a request through whose token may do what the operation needs.
func (a *API) admit(id string) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		scheme, text, _ := strings.Cut(ctx.Header("Authorization"), " ")
		token, known := a.Tokens.Find(strings.TrimSpace(text))
		switch {
		case !strings.EqualFold(scheme, "Bearer") || !known:
			ctx.SetHeader("WWW-Authenticate", `Bearer realm="keytill"`)
			a.refuse(ctx, http.StatusUnauthorized, "unauthorized", "send a valid token as Authorization: Bearer …")
		case !may(token.Role, id):
			a.refuse(ctx, http.StatusForbidden, "forbidden", fmt.Sprintf("a token of role %s may not do this", token.Role))
		default:
			logs.Note(ctx.Context(), "operation", id)
			logs.Note(ctx.Context(), "token", token.Name)
			next(huma.WithValue(ctx, callerKey{}, token))
		}
	}
}
