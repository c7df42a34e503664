package mutation

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
)

// mutation is a bug and the tests that must fail because of it.
type mutation struct {
	name     string
	sample   bool   // runs in continuous integration
	file     string // relative to the module root
	old, new string // old occurs once in file
	pkg, run string
	seeds    int // runs of a test that meets the bug with some random seeds only; 0: one run
}

var mutations = []mutation{
	{
		name: "the write-ahead log is not synced", sample: true, file: "wal/writer.go",
		old: "err = w.file.Sync(through) // Append may run concurrently", new: "err = nil",
		pkg: "./wal", run: "TestRandomCrashes",
	},
	{
		name: "the checksum of a log record is not compared", file: "wal/reader.go",
		old: "order.Uint32(b[recordCRCAt:]); got != want {", new: "order.Uint32(b[recordCRCAt:]); got != want && got == 0 {",
		pkg: "./wal", run: "Flip|Byte|Damage|Crash",
	},
	{
		name: "the checksum of a record does not include the log id", file: "wal/format.go",
		old: "uint32 { return checksum.Of(id[:], owner) }", new: "uint32 { return 0 }",
		pkg: "./wal", run: "TestDamage$",
	},
	{
		name: "the memtable size counts unused slots", file: "lsm/internal/memtable/versionmap.go",
		old: "slotBytes<<m.needed", new: "slotBytes<<(m.needed+6)",
		pkg: "./lsm", run: "TestBudgetModel",
	},
	{
		name: "the log directory is not synced", file: "lsm/log.go",
		old: "if err := s.env.FS.SyncDir(s.env.dir); err != nil {", new: "if err := error(nil); err != nil {",
		pkg: "./lsm", run: "TestCrash$/power",
	},
	{
		name: "a table is not synced before the manifest refers to it", sample: true, file: "lsm/internal/table/writer.go",
		old: "if err := w.file.Sync(); err != nil {", new: "if err := error(nil); err != nil {",
		pkg: "./lsm", run: "TestCrash$/power",
	},
	{
		name: "the directory is not synced before the manifest refers to a new table", file: "lsm/install.go",
		old: "if err = db.env.FS.SyncDir(db.env.dir); err == nil {", new: "if err == nil {",
		pkg: "./lsm", run: "TestCrash$/power",
	},
	{
		name: "an atomic file is renamed before it is synced", file: "internal/vfs/atomicfile.go",
		old: "err = f.Sync()\n", new: "err = nil\n",
		pkg: "./lsm", run: "TestCrash$/power",
	},
	{
		name: "the directory is not synced after a rename", file: "internal/vfs/atomicfile.go",
		old: "return fsys.SyncDir(filepath.Dir(name))", new: "_ = filepath.Dir\n	return nil",
		pkg: "./lsm", run: "TestCrash$/power",
	},
	{
		name: "the checksum of a table block is not compared", sample: true, file: "lsm/internal/table/block.go",
		old: "return order.Uint32(b.data) == checksum.Update(seed, b.head()[4:])", new: "return true",
		pkg: "./lsm", run: "Flip|Byte|Damage|Corrupt",
	},
	{
		name: "replay continues after a gap in the sequence numbers", file: "lsm/recover.go",
		old: "		return errGap\n", new: "		db.commit.visible.Store(sequence - 1)\n",
		pkg: "./lsm", run: "TestCrash$/process",
	},
	{
		name: "the checksum of a filter page is not compared", file: "bloom/filter.go",
		old: "if got := checksum.Of(b); got != e.crc {", new: "if got := checksum.Of(b); got != e.crc && got == 0 {",
		pkg: "./bloom", run: "Damage|Corrupt|Flip",
	},
	{
		name: "a queue block is marked as durable before it is synced", sample: true, file: "queue/internal/segment/writer.go",
		old: "	err := s.file.SyncData()\n", new: "	err := error(nil)\n",
		pkg: "./queue", run: "TestCrashAtEveryOperation|TestCrashDuringConcurrentFlushes",
	},
	{
		name: "the directory is not synced after a segment is sealed", file: "queue/internal/segment/writer.go",
		old: "		return err\n	}\n	return fsys.SyncDir(dir)\n}", new: "		return err\n	}\n	return nil\n}",
		pkg: "./queue", run: "TestCrashAtEveryOperation",
	},
	{
		name: "a segment whose fsync failed is sealed without being rewritten", file: "queue/internal/segment/writer.go",
		old: "if err := s.writeAgain(file, max(w.Next-MarkBytes, s.Header.FirstFrame())); err != nil {", new: "if err := error(nil); err != nil {",
		pkg: "./queue", run: "TestPowerLossAfterFailedSync",
	},
	{
		name: "a log of an earlier process is assumed to be durable", file: "lsm/log.go",
		old: "			return errOldLog\n", new: "			log.durable = true\n",
		pkg: "./lsm", run: "TestPowerLossBehindALogOfAnEarlierProcess",
	},
	{
		name: "orphans are deleted before the manifest is durable", file: "lsm/open.go",
		old: "	if err := db.env.FS.SyncDir(db.env.dir); err != nil {", new: "	if err := error(nil); err != nil {",
		pkg: "./lsm", run: "TestPowerLossBehindAnOpenAfterAKill",
	},
	{
		name: "segments are deleted before the name of their rewrite is durable", file: "queue/maintain/compact.go",
		old: "	if err := fsys.SyncDir(dir); err != nil {", new: "	if err := error(nil); err != nil {",
		pkg: "./queue/maintain", run: "TestCompactCrash$",
	},
	{
		name: "the checksum of a document is not compared", sample: true, file: "queue/internal/segment/fetch.go",
		old: "	if got != l.CRC {", new: "	if got != l.CRC && got == 0 {",
		pkg: "./queue", run: "Flip|Byte|Damage|Corrupt",
	},
	{
		name: "the checksum of a block table is not compared", file: "queue/internal/segment/block.go",
		old: "if got := checksum.Update(0, b.Bytes[4:]); got != h.CRC {", new: "if got := checksum.Update(0, b.Bytes[4:]); got != h.CRC && got == 0 {",
		pkg: "./queue", run: "Flip|Byte|Damage|Corrupt",
	},
	{
		name: "a fetch does not compare the document id", file: "queue/internal/segment/fetch.go",
		old: "case q.ID != nil && !bytes.Equal(q.ID, id):", new: "case q.ID != nil && !bytes.Equal(id, id):",
		pkg: "./queue", run: "TestForeignAndForkedSegments|TestQuarantinedFile|TestStoredForm",
	},
	{
		name: "a fetch reads an older file although a rewrite cannot be verified", file: "queue/fetch.go",
		old: "			if !hasEntry {\n				break", new: "			if false && !hasEntry {\n				break",
		pkg: "./queue", run: "TestCompactPartialReplica", seeds: 30,
	},
	{
		name: "the tail position is stored before the entries that it covers", sample: true, file: "docservice/collection/tail.go",
		old: "	err := state.putIn(batch)\n",
		new: "	var alone lsm.Batch\n	err := errors.CombineErrors(state.putIn(&alone), f.index.Apply(&alone))\n",
		pkg: "./docservice/collection", run: "TestCrash|TestFault",
	},
	{
		name: "segments of another queue are accepted", file: "docservice/collection/store.go",
		old: "		s.queue.Bind(p.Queue)\n", new: "",
		pkg: "./docservice/collection", run: "TestAnotherQueueOverwritesTheOneServed",
	},
	{
		name: "a segment is recorded as verified before it is durable", file: "docservice/collection/verified.go",
		old: "found.durable, found.syncErr = syncFile(v.fs, f.path)", new: "found.durable = true",
		pkg: "./docservice/collection", run: "TestPowerLossAfterVerification",
	},
	{
		name: "a batch asks a server again that has not answered", file: "docservice/client.go",
		old: "append(slices.Clone(asked.Avoid), asked.Server)", new: "slices.Clone(asked.Avoid)",
		pkg: "./docservice/sharded", run: "TestRowLacksShard",
	},
	{
		name: "an id of less than 32 bytes is in another shard", file: "queue/shard/hash.go",
		old: "	h := seed + prime5\n", new: "	h := seed + prime4\n",
		pkg: "./queue/shard", run: "TestShardsOfKnownIDs",
	},
	{
		name: "the index scrub reads tables and does not verify them", file: "lsm/check.go",
		old: "		err = t.Check(false, rest)\n", new: "		err = rest(int64(t.Facts.FileBytes))\n",
		pkg: "./lsm", run: "TestScrubFindsDamageBeneathAnOpenStore",
	},
	{
		name: "a slot is assigned twice", sample: true, file: "boxcarrpc/core/board.go",
		old: "	b.words[number/64] |= 1 << (number % 64)\n", new: "",
		pkg: "./boxcarrpc/core", run: "Board",
	},
	{
		name: "remote hosts are served without TLS", file: "boxcarrpc/server_auth.go",
		old: "	if s.tls != nil || s.options.Insecure || conn.IsLocal(l.Addr()) {", new: "	if s != nil || conn.IsLocal(l.Addr()) {",
		pkg: "./boxcarrpc", run: "TestPlainTextIsForThisHost",
	},
	{
		name: "a token is sent without TLS", sample: true, file: "boxcarrpc/dial.go",
		old: "	case token != \"\":\n		return nil", new: "	case token == \"never\":\n		return nil",
		pkg: "./boxcarrpc", run: "TestPlainTextIsForThisHost",
	},
	{
		name: "a client stays connected after its token is revoked", file: "boxcarrpc/session/session.go",
		old: "	s.end(err)\n", new: "	_ = err\n",
		pkg: "./boxcarrpc", run: "TestRevokedTokenEndsConnections",
	},
	{
		name: "streams are not authorized", file: "boxcarrpc/server_auth.go",
		old: "			return denied(err)\n", new: "			_ = denied(err)\n",
		pkg: "./boxcarrpc", run: "TestAuthorize",
	},
	{
		name: "a client certificate is optional", file: "boxcarrpc/credentials/tls.go",
		old: "tls.RequireAndVerifyClientCert", new: "tls.VerifyClientCertIfGiven",
		pkg: "./boxcarrpc/credentials", run: "TestClientCertificateRequirement",
	},
	{
		name: "a prefix of a token is accepted", file: "boxcarrpc/credentials/tokens.go",
		old: "subtle.ConstantTimeCompare(entries[i].sum[:], sum[:])", new: "subtle.ConstantTimeCompare(entries[i].sum[:0], sum[:0])",
		pkg: "./boxcarrpc/credentials", run: "TestTokensOfAFile",
	},
	{
		name: "the gRPC listener does not authenticate", file: "docservice/server/grpcserver/protocol.go",
		old: "	identity, err := g.Authenticator().Identify(state, token)\n	if err != nil {", new: "	identity, err := g.Authenticator().Identify(state, token)\n	if err != nil && token == \"\" {",
		pkg: "./docservice/server/grpcserver", run: "TestDaemonRequiresCredentials",
	},
}

// TestMutations verifies that the tests detect each bug. Without -run and outside make soak
// it tests a sample, because a mutation takes several seconds.
func TestMutations(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	all := crashtest.Soak() || flag.Lookup("test.run").Value.String() != ""
	for _, m := range slices.Concat(mutations, boxcarMutations, fleetMutations) {
		t.Run(m.name, func(t *testing.T) {
			m.mustApply(t, root)
			if !all && !m.sample {
				t.Skip("applies; its tests run in make soak")
			}
			m.mustBeDetected(t, root)
		})
	}
}

// mustApply verifies that the source has the text to be changed, and the tests to be run.
func (m *mutation) mustApply(t *testing.T, root string) {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.file)))
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(source), m.old), "the text to replace must occur once in %s; update the mutation", m.file)
	tests, err := filepath.Glob(filepath.Join(root, m.pkg, "*_test.go"))
	require.NoError(t, err)
	function, _, _ := strings.Cut(m.run, "/")
	matching := regexp.MustCompile(function)
	for _, path := range tests {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, name := range testFunction.FindAllSubmatch(content, -1) {
			if matching.Match(name[1]) {
				return
			}
		}
	}
	require.Fail(t, "no test matches", "%s in %s; update the mutation", m.run, m.pkg)
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

func (m *mutation) mustBeDetected(t *testing.T, root string) {
	t.Helper()
	path := filepath.Join(root, filepath.FromSlash(m.file))
	source, err := os.ReadFile(path)
	require.NoError(t, err)
	changed := filepath.Join(t.TempDir(), "changed.go")
	require.NoError(t, os.WriteFile(changed, []byte(strings.Replace(string(source), m.old, m.new, 1)), 0o600))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	require.NoError(t, err)
	overlayFile := filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, os.WriteFile(overlayFile, overlay, 0o600))

	dir, pkg := root, m.pkg
	if inBench, ok := strings.CutPrefix(pkg, "./bench/"); ok { // a module
		dir, pkg = filepath.Join(root, "bench"), "./"+inBench
	}
	command := exec.Command("go", "test", "-overlay", overlayFile, "-vet=off", fmt.Sprint("-count=", max(m.seeds, 1)), "-failfast", "-timeout", "10m", "-run", m.run, pkg)
	command.Dir = dir
	command.Env = append(os.Environ(), crashtest.SoakVariable+"=1") // a sample of the crashes may miss the bug
	output, err := command.CombinedOutput()
	require.NotContains(t, string(output), "[build failed]")
	require.NotContains(t, string(output), "no tests to run")
	require.Error(t, err, "%s passes with the bug:\n%s", m.run, output)
	require.Contains(t, string(output), "FAIL")
}
