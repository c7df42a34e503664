package postgres

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"

	"docstore/ingest/postgres/pgjson"
)

// Options say what to read.
type Options struct {
	// Connection is a connection string of libpq: a URL or pairs of keyword and value. The
	// password may also be in PGPASSWORD or a password file.
	Connection string
	// Table is the name of a table, SCHEMA.TABLE; the schema is public by default. The source
	// reads its rows and then follows its changes.
	Table string
	// Query is read instead of a table. The source ends after its rows.
	Query string
	// Key has the columns of a Query that identify a row.
	Key []string
	// Slot is the name of the replication slot, which is made if the queue is empty.
	// The default is docstore_ and the table's name.
	Slot string
	// Publication is the name of the publication, which is made if the queue is empty. The
	// default is the name of the slot.
	Publication string
	// Follow waits for changes. Without it the source ends behind the changes that are
	// committed at Open. The source of a query always ends.
	Follow bool
	// Logger reports lost connections; nil: nothing is logged.
	Logger *slog.Logger
}

// Opener is the ingest.Opener of a table or query.
type Opener struct {
	options Options
	config  *pgconn.Config
	table   name // empty for a query
	log     *slog.Logger
	// latest is the last of the cursors that Earliest compared, for Open.
	latest atomic.Pointer[cursor]
}

// Ends implements ingest.Opener.
func (o *Opener) Ends() bool { return !o.options.Follow }

// name is a name in a schema.
type name struct{ schema, table string }

func (n name) String() string { return n.schema + "." + n.table }

// quoted returns the name as SQL.
func (n name) quoted() string { return quote(n.schema) + "." + quote(n.table) }

// quote returns an identifier as SQL.
func quote(identifier string) string { return `"` + strings.ReplaceAll(identifier, `"`, `""`) + `"` }

// The parameters of a URL that are not PostgreSQL's.
const (
	parameterTable       = "table"
	parameterQuery       = "query"
	parameterKey         = "key"
	parameterSlot        = "slot"
	parameterPublication = "publication"
)

// ParseURL returns the options in a URL:
//
//	postgres://USER@HOST:PORT/DATABASE?table=public.jobs&sslmode=verify-full
//
// The parameters table, slot, publication, query and key (columns separated by commas) are
// those of Options. All others are PostgreSQL's.
func ParseURL(text string) (Options, error) {
	u, err := url.Parse(text)
	if err != nil {
		// The error of url.Parse contains the text, perhaps with a password.
		return Options{}, errors.New("postgres: the URL is invalid: percent-encode special characters in user and password")
	}
	if u.Scheme != "postgres" {
		return Options{}, fmt.Errorf("postgres: the URL has the scheme %q, want postgres", u.Scheme)
	}
	parameters, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Options{}, fmt.Errorf("postgres: the parameters of the URL are invalid: %w", err)
	}
	var o Options
	for key, to := range map[string]*string{
		parameterTable: &o.Table, parameterQuery: &o.Query, parameterSlot: &o.Slot, parameterPublication: &o.Publication,
	} {
		if values := parameters[key]; len(values) > 1 {
			return Options{}, fmt.Errorf("postgres: the URL has %s twice", key)
		}
		*to = parameters.Get(key)
		parameters.Del(key)
	}
	if keys := parameters.Get(parameterKey); keys != "" {
		o.Key = strings.Split(keys, ",")
	}
	parameters.Del(parameterKey)
	u.RawQuery = parameters.Encode()
	o.Connection = u.String()
	return o, nil
}

// slotName is the form that PostgreSQL requires.
var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// New returns the opener of a source. It reports all invalid options at once.
func New(o Options) (*Opener, error) {
	var problems []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, fmt.Errorf("postgres: "+format, args...))
		}
	}
	config, err := pgconn.ParseConfig(o.Connection)
	if err != nil {
		problems = append(problems, fmt.Errorf("postgres: %w", err)) // without the password
	}
	isTable := o.Table != ""
	refuse(isTable == (o.Query != ""), "want a table or a query: table=SCHEMA.TABLE or query=SELECT... with key=COLUMN")
	refuse(isTable && len(o.Key) > 0, "key is for a query; the id of a table's row is its primary key")
	refuse(!isTable && len(o.Key) == 0 && o.Query != "", "a query needs key=COLUMN, the columns that identify a row")
	refuse(!isTable && (o.Slot != "" || o.Publication != ""), "slot and publication are for a table; a query is not followed")
	refuse(!isTable && o.Follow, "a query is not followed; follow a table")
	for _, column := range o.Key {
		refuse(column == "", "key has an empty column name")
	}
	o.Query = strings.TrimRight(o.Query, "; \t\r\n")
	opener := &Opener{options: o, config: config, log: o.Logger}
	if opener.log == nil {
		opener.log = slog.New(slog.DiscardHandler)
	}
	if isTable {
		opener.table, err = parseName(o.Table)
		if err != nil {
			problems = append(problems, err)
		}
		slot := &opener.options.Slot
		if *slot == "" {
			*slot = defaultSlot(opener.table)
		}
		refuse(!slotName.MatchString(*slot), "slot %q: want at most %d lower-case letters, digits and underscores", *slot, maxSlotName)
		if opener.options.Publication == "" {
			opener.options.Publication = *slot
		}
		refuse(len(opener.options.Publication) > maxSlotName, "publication %q: want at most %d bytes", opener.options.Publication, maxSlotName)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	opener.configure()
	return opener, nil
}

// configure sets what every connection needs.
func (o *Opener) configure() {
	if o.config.RuntimeParams["application_name"] == "" {
		o.config.RuntimeParams["application_name"] = "docstore-updater"
	}
	maps.Copy(o.config.RuntimeParams, pgjson.Settings())
	// Reading takes long, and the order of the key must come from its index.
	for _, key := range []string{"statement_timeout", "idle_in_transaction_session_timeout", "lock_timeout"} {
		o.config.RuntimeParams[key] = "0"
	}
	o.config.MaxProtocolMessageBodyLen = maxMessageBytes
}

// parseName parses SCHEMA.TABLE or TABLE. Names are taken as they are, without folding to
// lower case.
func parseName(text string) (name, error) {
	parts := strings.Split(text, ".")
	if len(parts) == 1 {
		parts = []string{"public", parts[0]}
	}
	if len(parts) != 2 || parts[0] == "" || parts[1] == "" {
		return name{}, fmt.Errorf("postgres: table %q: want SCHEMA.TABLE", text)
	}
	return name{parts[0], parts[1]}, nil
}

// defaultSlot derives the name of a slot from that of a table.
func defaultSlot(table name) string {
	slot := []byte("docstore_")
	for _, c := range []byte(strings.ToLower(table.table)) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			c = '_'
		}
		slot = append(slot, c)
	}
	return string(slot[:min(len(slot), maxSlotName)])
}
