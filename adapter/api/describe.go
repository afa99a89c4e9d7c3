package api

import (
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
)

// What describes operations that other packages answer.

func schemaOf[T any](document *huma.OpenAPI, name string) *huma.Schema {
	return document.Components.Schemas.Schema(reflect.TypeFor[T](), true, name)
}

func body(schema *huma.Schema) *huma.RequestBody {
	return &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
}

func query(name, about, kind string) *huma.Param {
	return &huma.Param{Name: name, In: "query", Description: about, Schema: &huma.Schema{Type: kind}}
}

// respond describes an operation's answers: the good one, and a problem document for each that it can fail with.
func respond(document *huma.OpenAPI, op *huma.Operation, schema *huma.Schema) {
	op.Responses = map[string]*huma.Response{
		"200": {Description: "OK", Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}}
	problem := schemaOf[huma.ErrorModel](document, "ErrorModel")
	for _, status := range op.Errors {
		op.Responses[strconv.Itoa(status)] = &huma.Response{Description: http.StatusText(status),
			Content: map[string]*huma.MediaType{"application/problem+json": {Schema: problem}}}
	}
}
