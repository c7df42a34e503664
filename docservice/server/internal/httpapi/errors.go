package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// A Code identifies the kind of an error for programs.
type Code string

// Codes of errors. docs/serving.md lists them with their statuses.
const (
	CodeInvalidArgument   Code = "invalid_argument"
	CodeUnauthenticated   Code = "unauthenticated"
	CodeForbidden         Code = "forbidden"
	CodeNotFound          Code = "not_found"
	CodeNoCollection      Code = "no_collection"
	CodeNoPath            Code = "no_path"
	CodeMethodNotAllowed  Code = "method_not_allowed"
	CodeTimeout           Code = "request_timeout"
	CodeTooLarge          Code = "too_large"
	CodeUnsupported       Code = "unsupported_media_type"
	CodePrecondition      Code = "precondition_failed"
	CodeRange             Code = "range_not_satisfiable"
	CodeResourceExhausted Code = "resource_exhausted"
	CodeUnavailable       Code = "unavailable"
	CodeMoved             Code = "moved"
	CodeInternal          Code = "internal"
)

// Statuses are the HTTP statuses of the codes.
var statuses = map[Code]int{
	CodeInvalidArgument:   http.StatusBadRequest,
	CodeUnauthenticated:   http.StatusUnauthorized,
	CodeForbidden:         http.StatusForbidden,
	CodeNotFound:          http.StatusNotFound,
	CodeNoCollection:      http.StatusNotFound,
	CodeNoPath:            http.StatusNotFound,
	CodeMethodNotAllowed:  http.StatusMethodNotAllowed,
	CodeTimeout:           http.StatusRequestTimeout,
	CodeTooLarge:          http.StatusRequestEntityTooLarge,
	CodeUnsupported:       http.StatusUnsupportedMediaType,
	CodePrecondition:      http.StatusPreconditionFailed,
	CodeRange:             http.StatusRequestedRangeNotSatisfiable,
	CodeResourceExhausted: http.StatusTooManyRequests,
	CodeUnavailable:       http.StatusServiceUnavailable,
	CodeMoved:             http.StatusMisdirectedRequest,
	CodeInternal:          http.StatusInternalServerError,
}

// An Error is an error response.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// Errorf returns an Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string { return e.Message }

// Status returns the HTTP status.
func (e *Error) Status() int { return statuses[e.Code] }

// retryAfterSeconds is the value of Retry-After in errors that another attempt may not have.
const retryAfterSeconds = "1"

// Write writes the response.
func (e *Error) Write(w http.ResponseWriter) {
	header := w.Header()
	for _, name := range []string{"Content-Encoding", "Content-Length", "ETag", "Cache-Control"} {
		header.Del(name) // of a response that failed
	}
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	if e.Code == CodeResourceExhausted || e.Code == CodeUnavailable {
		header.Set("Retry-After", retryAfterSeconds)
	}
	w.WriteHeader(e.Status())
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(struct { // the client may have disconnected
		Error *Error `json:"error"`
	}{e})
}

// Routes returns a handler that answers with Errors where a mux finds no handler.
func Routes(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fallback, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		answer := &statusRecorder{header: http.Header{}}
		fallback.ServeHTTP(answer, r)
		if allow := answer.header.Get("Allow"); allow != "" {
			NotAllowed(w, r, allow)
			return
		}
		Errorf(CodeNoPath, "no such path; see /openapi.yaml").Write(w)
	})
}

// NotAllowed answers a request with a method other than those that are allowed.
func NotAllowed(w http.ResponseWriter, r *http.Request, allow string) {
	w.Header().Set("Allow", allow)
	Errorf(CodeMethodNotAllowed, "method %s: want %s", r.Method, strings.ReplaceAll(allow, ", ", " or ")).Write(w)
}

// statusRecorder keeps the header of a response.
type statusRecorder struct{ header http.Header }

func (s *statusRecorder) Header() http.Header         { return s.header }
func (s *statusRecorder) Write(b []byte) (int, error) { return len(b), nil }
func (s *statusRecorder) WriteHeader(int)             {}
