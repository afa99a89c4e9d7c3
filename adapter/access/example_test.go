package access_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/keytill/keytill/adapter/access"
)

// A token is shown once; the file has a line that knows it by its hash.
func Example() {
	token, line, err := access.New(access.Token{Name: "licence-server", Role: access.Verify})
	if err != nil {
		panic(err)
	}
	fmt.Println(strings.HasPrefix(token, "keytill_verify_"), strings.Contains(line, token))

	tokens, err := access.Read(strings.NewReader("# name role hash\n" + line + "\n"))
	if err != nil {
		panic(err)
	}
	hello := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { fmt.Println("hello,", access.Of(r.Context()).Name) })
	ask := func(need access.Role, token string) int {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		tokens.Require(need, hello).ServeHTTP(w, r)
		return w.Code
	}
	fmt.Println(ask(access.Verify, token))
	fmt.Println(ask(access.Admin, token))
	fmt.Println(ask(access.Verify, "keytill_verify_guessed"))
	// Output:
	// true false
	// hello, licence-server
	// 200
	// 403
	// 401
}
