package records

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
)

// Fields changes the top-level fields of documents. The zero value changes nothing.
type Fields struct {
	Keep   []string          // only these; empty: all
	Drop   []string          // all but these
	Rename map[string]string // old name to new name, after Keep and Drop

	found *foundFields // set by Check
}

// foundFields are the fields of a Fields that documents had. Several goroutines may use it.
type foundFields struct {
	any   atomic.Bool  // a document was changed
	left  atomic.Int32 // number of fields that were not found
	names map[string]*atomic.Bool
}

func newFoundFields(f *Fields) *foundFields {
	found := &foundFields{names: map[string]*atomic.Bool{}}
	for _, names := range [][]string{f.Keep, f.Drop, slices.Collect(maps.Keys(f.Rename))} {
		for _, name := range names {
			found.names[name] = new(atomic.Bool)
		}
	}
	found.left.Store(int32(len(found.names)))
	return found
}

func (f *foundFields) add(name string) {
	if f == nil || f.left.Load() == 0 {
		return
	}
	if named := f.names[name]; named != nil && named.CompareAndSwap(false, true) {
		f.left.Add(-1)
	}
}

// Missing returns the fields that are kept, dropped or renamed, and that no document had since
// Check, in ascending order; nil if there were no documents.
func (f *Fields) Missing() (names []string) {
	if f.found == nil || !f.found.any.Load() {
		return nil
	}
	for name, found := range f.found.names {
		if !found.Load() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Check returns an error if the changes contradict each other. It starts to record which fields
// documents have.
func (f *Fields) Check() error {
	f.found = newFoundFields(f)
	if len(f.Keep) > 0 && len(f.Drop) > 0 {
		return errors.New("fields are kept and dropped; give one list")
	}
	if slices.Contains(f.Keep, "") || slices.Contains(f.Drop, "") {
		return errors.New("the name of a field is empty")
	}
	names := map[string]bool{}
	for old, name := range f.Rename {
		switch {
		case old == "" || name == "":
			return errors.New("the name of a renamed field is empty; write OLD=NEW")
		case names[name]:
			return fmt.Errorf("two fields are renamed to %q", name)
		case f.removes(old):
			return fmt.Errorf("field %q is renamed, but is not kept", old)
		}
		names[name] = true
	}
	return nil
}

// None reports whether nothing is changed.
func (f *Fields) None() bool { return len(f.Keep)+len(f.Drop)+len(f.Rename) == 0 }

// removes reports whether documents lose a field.
func (f *Fields) removes(name string) bool {
	return slices.Contains(f.Drop, name) || len(f.Keep) > 0 && !slices.Contains(f.Keep, name)
}

// Uses reports whether the top-level field of a record affects its entry: it remains in the
// document, is part of the id, or is a control field. The others need not be read. nil options
// select the defaults.
func (f *Fields) Uses(name string, o *Options) bool {
	f.found.add(name)
	options := o.withDefaults()
	return !f.removes(name) || options.reads(name)
}

// Apply returns the changed document. The values stay as they are written; blanks between
// fields are removed.
func (f *Fields) Apply(document []byte) ([]byte, error) {
	if f.found != nil {
		f.found.any.Store(true)
	}
	changed := make([]byte, 0, len(document))
	changed = append(changed, '{')
	var names []string
	err := forEachField(document, func(one field) error {
		name, ok := one.text()
		if !ok {
			return fmt.Errorf("the name of field %q is not valid Unicode", one.name)
		}
		f.found.add(name)
		if f.removes(name) {
			return nil
		}
		if len(changed) > 1 {
			changed = append(changed, ',')
		}
		renamed, is := f.Rename[name]
		if len(f.Rename) > 0 {
			// A renamed field must not become a second one of its name.
			if is {
				name = renamed
			}
			if slices.Contains(names, name) {
				return &duplicateError{name}
			}
			names = append(names, strings.Clone(name))
		}
		if is {
			encoded, err := json.Marshal(name)
			if err != nil {
				return err
			}
			changed = append(append(changed, encoded...), ':')
		} else {
			changed = append(append(append(changed, '"'), one.name...), '"', ':')
		}
		changed = append(changed, one.value...)
		return nil
	})
	return append(changed, '}'), err
}

// text returns the decoded name; ok is false if it is not Unicode.
func (f field) text() (name string, ok bool) {
	if !slices.Contains(f.name, '\\') {
		return string(f.name), true
	}
	unescaped, ok := unescape(nil, f.name)
	return string(unescaped), ok
}
