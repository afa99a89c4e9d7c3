package problem_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/keytill/keytill/adapter/problem"
)

func ExampleWrite() {
	w := httptest.NewRecorder()
	problem.Write(w, http.StatusConflict, "sold_out", "the cart asks for more than there is")
	fmt.Println(w.Code, w.Header().Get("Content-Type"))
	fmt.Print(w.Body)
	// Output:
	// 409 application/problem+json
	// {"type":"urn:keytill:problem:sold_out","title":"Conflict","status":409,"detail":"the cart asks for more than there is"}
}
