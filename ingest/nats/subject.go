package nats

import (
	"strings"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// validSubject reports whether a subject with wildcards is valid.
func validSubject(subject string) bool {
	words := strings.Split(subject, ".")
	for i, word := range words {
		if word == "" || strings.ContainsAny(word, " \t\r\n") || word == ">" && i < len(words)-1 ||
			len(word) > 1 && strings.ContainsAny(word, "*>") {
			return false
		}
	}
	return len(subject) <= maxSubjectBytes
}

// wildcardPart returns the words of a subject that match the wildcards of a pattern. The
// subject matches the pattern, so the words are different for each subject.
func wildcardPart(pattern []string, subject string) string {
	var part strings.Builder
	for _, word := range pattern {
		if word == ">" {
			part.WriteString(separator(&part) + subject)
			break
		}
		first, rest, _ := strings.Cut(subject, ".")
		if word == "*" {
			part.WriteString(separator(&part) + first)
		}
		subject = rest
	}
	return part.String()
}

func separator(part *strings.Builder) string {
	if part.Len() == 0 {
		return ""
	}
	return "."
}

// operationHeader is the header of deletes in key-value buckets.
const operationHeader = "KV-Operation"

// isDelete reports whether the headers are those of a delete, or of the marker that a server
// writes when it removes the last message of a subject.
func isDelete(header natsgo.Header) bool {
	if len(header) == 0 {
		return false
	}
	operation := header.Get(operationHeader)
	return operation == "DEL" || operation == "PURGE" || header.Get(jetstream.MarkerReasonHeader) != ""
}
