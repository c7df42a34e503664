package livepage

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Diagnostics are the texts of a daemon that only some callers may see.
type Diagnostics struct {
	Log      string // the latest lines, oldest first, as JSON or as on a terminal
	Settings string // the effective ones and their sources, a line each
}

const (
	// shownLines and shownWarnings limit the lines of the log on the page.
	shownLines    = 20
	shownWarnings = 10
)

// diagnostics is the input of templates.
type diagnostics struct {
	Latest   []logLine // newest first
	Warnings []logLine // and errors, also those that are not among the latest; newest first
	Settings string
}

// logLine is a line of the log.
type logLine struct {
	Time    string // empty: Message has it
	Level   string // empty: Message has it
	Message string
	Details string // the attributes
}

func diagnosticsOf(d Diagnostics) *diagnostics {
	shown := &diagnostics{Settings: d.Settings}
	lines := strings.Split(strings.TrimSuffix(d.Log, "\n"), "\n")
	for _, text := range slices.Backward(lines) {
		latest := len(shown.Latest) < shownLines
		warning := len(shown.Warnings) < shownWarnings && (strings.Contains(text, "WARN") || strings.Contains(text, "ERROR"))
		if text == "" || !latest && !warning {
			continue
		}
		line := parseLogLine(text)
		if latest {
			shown.Latest = append(shown.Latest, line)
		}
		if warning && isWarning(line.Level) {
			shown.Warnings = append(shown.Warnings, line)
		}
	}
	return shown
}

// parseLogLine parses a line of JSON. Others are those of a terminal, "15:04:05 WARN message".
func parseLogLine(text string) logLine {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &fields) != nil {
		line := logLine{Message: text}
		if clock, rest, _ := strings.Cut(text, " "); isClock(clock) {
			line.Time, line.Message = clock, rest
		}
		if level, rest, _ := strings.Cut(line.Message, " "); isWarning(level) {
			line.Level, line.Message = level, rest
		}
		return line
	}
	take := func(name string) string {
		text := textOf(fields[name])
		delete(fields, name)
		return text
	}
	line := logLine{Time: take("time"), Level: take("level"), Message: take("msg")}
	if date, _, fraction := strings.Cut(line.Time, "."); fraction {
		line.Time = strings.Replace(date, "T", " ", 1)
	}
	var details []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		details = append(details, fmt.Sprintf("%s=%s", name, textOf(fields[name])))
	}
	line.Details = strings.Join(details, " ")
	return line
}

// textOf returns a JSON string as its text, and other JSON as it is.
func textOf(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

func isClock(text string) bool {
	_, err := time.Parse(time.TimeOnly, text)
	return err == nil
}

func isWarning(level string) bool { return level == "WARN" || level == "ERROR" }
