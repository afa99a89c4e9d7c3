package stripefake

import (
	"fmt"
	"net/http"
	"strings"
)

// An apiError is an answer that refuses, shaped as Stripe's errors are.
type apiError struct {
	status int
	typ    string // invalid_request_error unless said
	code   string
	msg    string
	param  string
}

// body is the JSON of the error; the request's id makes its log address.
func (e *apiError) body(requestID string, live bool) map[string]any {
	typ, mode := e.typ, "test/"
	if typ == "" {
		typ = "invalid_request_error"
	}
	if live {
		mode = ""
	}
	m := map[string]any{
		"type": typ, "message": e.msg,
		"request_log_url": "https://dashboard.stripe.com/" + mode + "logs/" + requestID,
	}
	if e.code != "" {
		m["code"] = e.code
		m["doc_url"] = "https://stripe.com/docs/error-codes/" + strings.ReplaceAll(e.code, "_", "-")
	}
	if e.param != "" {
		m["param"] = e.param
	}
	return map[string]any{"error": m}
}

func invalid(param, code, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, code: code, param: param, msg: fmt.Sprintf(format, args...)}
}

// missing is the answer to an id that is not there, or not to be seen. Named
// in a parameter it is a bad request, named in the path it is not found.
func (c *call) missing(k *kind, id, param string, inPath bool) *apiError {
	e := invalid(param, "resource_missing", "No such %s: '%s'", k.name, id)
	if inPath {
		e.status = http.StatusNotFound
	}
	other := realm{c.realm.account, !c.realm.live}
	if o := c.s.store.in(other, id); o != nil && o.kind == k {
		there, here := "live", "test"
		if c.realm.live {
			there, here = here, there
		}
		e.msg += fmt.Sprintf("; a similar object exists in %s mode, but a %s mode key was used to make this request.", there, here)
	}
	return e
}

// failure is the body that Stripe sends with a status when it is in trouble.
func failure(status int) *apiError {
	e := &apiError{status: status}
	switch {
	case status == http.StatusTooManyRequests:
		e.code = "rate_limit"
		e.msg = "Request rate limit exceeded. Learn more about rate limits here https://stripe.com/docs/rate-limits."
	case status == http.StatusConflict:
		e.code = "lock_timeout"
		e.msg = "This object cannot be accessed right now because another API request or Stripe process is currently accessing it. If you see this error intermittently, retry the request."
	case status >= 500:
		e.typ = "api_error"
		e.msg = "An unknown error occurred"
	default:
		e.msg = http.StatusText(status)
	}
	return e
}
