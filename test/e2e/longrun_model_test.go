//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	modelDocuments = 4_000
	// changesPerState is the number of changes that lead from a state to the next one.
	changesPerState = 200
	// One of deletesOf changes is a delete.
	deletesOf = 8
	// modelBodyBytes is the maximum size of a document without its fields.
	modelBodyBytes = 2_000
)

// version is the state in which a document was changed last, and whether it was deleted.
type version struct {
	state   int
	deleted bool
}

// model knows each document in each state of a collection. State 0 has all documents; each
// later one has changes that follow from the seed and its number, so that a run that is
// continued knows them without a file.
//
// An answer is right if it is that of any state from floor, the last one that all servers
// were seen to serve when the call began, to ceiling, the last one that may have been
// announced when the answer arrived.
type model struct {
	seed uint64

	mu struct {
		sync.Mutex
		versions       [][]version // of each document, ascending
		state          int         // the last one that was made
		floor, ceiling int
	}
}

func newModel(seed uint64) *model {
	m := &model{seed: seed}
	m.mu.versions = make([][]version, modelDocuments)
	for i := range m.mu.versions {
		m.mu.versions[i] = []version{{}}
	}
	return m
}

func modelID(number int) string { return fmt.Sprintf("job-%05d", number) }

// document returns a version of a document.
func (m *model) document(number int, v version) document {
	id := modelID(number)
	if v.deleted {
		return document{id: id, line: fmt.Appendf(nil, `{"id":%q,"_delete":true}`, id)}
	}
	r := rand.New(rand.NewPCG(m.seed, uint64(number)<<32|uint64(v.state)))
	body := make([]byte, r.IntN(modelBodyBytes))
	for i := range body {
		body[i] = 'a' + byte(r.IntN(16))
	}
	return document{id: id, line: fmt.Appendf(nil, `{"id":%q,"state":%d,"body":%q}`, id, v.state, body)}
}

// first returns the documents of state 0.
func (m *model) first() []document {
	documents := make([]document, modelDocuments)
	for i := range documents {
		documents[i] = m.document(i, version{})
	}
	return documents
}

// next makes the next state and returns its number and the changed documents.
func (m *model) next() (state int, changed []document) {
	m.mu.Lock()
	m.mu.state++
	for number, v := range m.changes(m.mu.state) {
		m.mu.versions[number] = append(m.mu.versions[number], v)
	}
	m.mu.Unlock()
	return m.last()
}

// last returns the last state and the documents that it has changed.
func (m *model) last() (state int, changed []document) {
	m.mu.Lock()
	state = m.mu.state
	m.mu.Unlock()
	changes := m.changes(state)
	for _, number := range slices.Sorted(maps.Keys(changes)) {
		changed = append(changed, m.document(number, changes[number]))
	}
	return state, changed
}

// changes returns the changes that lead to a state.
func (m *model) changes(state int) map[int]version {
	changes := map[int]version{}
	if state == 0 {
		return changes
	}
	r := rand.New(rand.NewPCG(m.seed, uint64(state)))
	for _, number := range r.Perm(modelDocuments)[:changesPerState] {
		changes[number] = version{state: state, deleted: r.IntN(deletesOf) == 0}
	}
	return changes
}

// latest returns the documents of the last state, nil for a deleted one.
func (m *model) latest() map[string][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	latest := map[string][]byte{}
	for number, versions := range m.mu.versions {
		latest[modelID(number)] = nil
		if v := versions[len(versions)-1]; !v.deleted {
			latest[modelID(number)] = m.document(number, v).line
		}
	}
	return latest
}

// announcing raises the ceiling before a state is announced.
func (m *model) announcing(state int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.ceiling = max(m.mu.ceiling, state)
}

// served raises the floor after all servers were seen to serve a state.
func (m *model) served(state int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.floor = max(m.mu.floor, state)
}

func (m *model) begin() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.floor
}

func (m *model) wrong(id string, begun int, document []byte, found bool) string {
	number := 0
	if n, err := fmt.Sscanf(id, "job-%05d", &number); n != 1 || err != nil {
		if found {
			return "found, and it does not exist"
		}
		return ""
	}
	m.mu.Lock()
	ceiling := m.mu.ceiling
	versions := slices.Clone(m.mu.versions[number])
	m.mu.Unlock()
	var described []string
	for i, v := range versions {
		old := i+1 < len(versions) && versions[i+1].state <= begun
		if old || v.state > ceiling {
			continue
		}
		if v.deleted && !found || !v.deleted && found && bytes.Equal(document, m.document(number, v).line) {
			return ""
		}
		described = append(described, fmt.Sprintf("%+v", v))
	}
	answer := "not found"
	if found {
		answer = fmt.Sprintf("%.80q", document)
	}
	return fmt.Sprintf("%s; right in states %d to %d: %v", answer, begun, ceiling, described)
}

// The model accepts the answers of the states from floor to ceiling, and no others.
func TestModelOfLongRun(t *testing.T) {
	const states = 60
	m := newModel(1)
	at := make([][]version, modelDocuments) // the version in each state
	for number := range at {
		at[number] = append(at[number], version{})
	}
	for range states {
		_, changed := m.next()
		for number := range at {
			at[number] = append(at[number], at[number][len(at[number])-1])
		}
		for _, d := range changed {
			var number int
			_, err := fmt.Sscanf(d.id, "job-%05d", &number)
			require.NoError(t, err)
			at[number][len(at[number])-1] = version{state: len(at[number]) - 1, deleted: bytes.Contains(d.line, []byte("_delete"))}
		}
	}
	m.announcing(40)
	m.served(20)
	require.Equal(t, 20, m.begin())
	refused := 0
	for number := range 200 {
		right := map[version]bool{}
		absent := false
		for _, v := range at[number][20 : 40+1] {
			right[v] = true
			absent = absent || v.deleted
		}
		require.Equal(t, absent, m.wrong(modelID(number), 20, nil, false) == "", number)
		for _, v := range at[number] {
			if !v.deleted {
				ok := m.wrong(modelID(number), 20, m.document(number, v).line, true) == ""
				require.Equal(t, right[v], ok, "%d %+v", number, v)
				if !ok {
					refused++
				}
			}
		}
		require.NotEmpty(t, m.wrong(modelID(number), 20, []byte("another"), true))
	}
	require.Positive(t, refused)
	require.Empty(t, m.wrong(absentID, 20, nil, false))
	require.NotEmpty(t, m.wrong(absentID, 20, nil, true))

	again := newModel(1)
	for range states {
		again.next()
	}
	require.Equal(t, m.mu.versions, again.mu.versions)
}
