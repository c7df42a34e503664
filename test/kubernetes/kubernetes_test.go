// Package kubernetes tests deploy/kubernetes without a cluster: it builds the example with
// kustomize, decodes each object strictly as the type of its API, and runs the commands of the
// pods with their settings as far as they check them.
//
// It is a separate module, so that the main module does not depend on Kubernetes.
package kubernetes

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	root    = "../.."
	example = root + "/deploy/kubernetes/example"
)

var update = flag.Bool("update", false, "write the rules of deploy/kubernetes")

// objects are the objects of the example by kind and name.
type objects map[string]any

// build builds a kustomization and decodes its objects.
func build(t *testing.T, dir string) objects {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	require.NoError(t, err)
	found := objects{}
	for _, resource := range built.Resources() {
		text, err := resource.AsYAML()
		require.NoError(t, err)
		object, err := decode(resource.GetApiVersion()+" "+resource.GetKind(), text)
		require.NoError(t, err, string(text))
		found[resource.GetKind()+" "+resource.GetName()] = object
	}
	return found
}

// decode decodes an object. Fields that its type does not have are an error.
func decode(kind string, text []byte) (any, error) {
	types := map[string]any{
		"v1 ConfigMap":                            &core.ConfigMap{},
		"v1 Namespace":                            &core.Namespace{},
		"v1 Service":                              &core.Service{},
		"apps/v1 StatefulSet":                     &apps.StatefulSet{},
		"policy/v1 PodDisruptionBudget":           &policy.PodDisruptionBudget{},
		"networking.k8s.io/v1 NetworkPolicy":      &networking.NetworkPolicy{},
		"monitoring.coreos.com/v1 ServiceMonitor": &monitoring.ServiceMonitor{},
		"monitoring.coreos.com/v1 PodMonitor":     &monitoring.PodMonitor{},
		"monitoring.coreos.com/v1 PrometheusRule": &monitoring.PrometheusRule{},
	}
	object := types[kind]
	if object == nil {
		return nil, os.ErrInvalid
	}
	return object, yaml.UnmarshalStrict(text, object)
}

func TestUnknownFieldsAreErrors(t *testing.T) {
	_, err := decode("v1 Service", []byte("apiVersion: v1\nkind: Service\nspec: {clusterIPs: None, selektor: {}}"))
	require.Error(t, err)
	_, err = decode("v1 Servize", []byte("apiVersion: v1"))
	require.Error(t, err)
}

// TestRules checks that the Prometheus operator gets the rules of deploy/prometheus.
func TestRules(t *testing.T) {
	path := root + "/deploy/kubernetes/monitoring/rules.yaml"
	rules, err := os.ReadFile(root + "/deploy/prometheus/alerts.yml")
	require.NoError(t, err)
	var spec monitoring.PrometheusRuleSpec
	require.NoError(t, yaml.UnmarshalStrict(rules, &spec))
	require.NotEmpty(t, spec.Groups)
	text := "# Written by go test -update from deploy/prometheus/alerts.yml.\n" +
		"apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: docserviced\nspec:\n"
	for line := range strings.Lines(string(rules)) {
		if !strings.HasPrefix(line, "#") {
			text += strings.TrimRight("  "+line, " \n") + "\n"
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	written, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, text, string(written), "run: go test ./... -update")
}

// TestExample checks that the parts of the example refer to each other.
func TestExample(t *testing.T) {
	found := build(t, example)
	for _, column := range []string{"a", "b"} {
		set := found["StatefulSet docserviced-"+column].(*apps.StatefulSet)
		require.Equal(t, "docstore", set.Namespace)
		require.Equal(t, column, set.Spec.Selector.MatchLabels["docstore/column"])
		require.Equal(t, "docserviced-"+column, set.Spec.ServiceName)
		service := found["Service "+set.Spec.ServiceName].(*core.Service)
		for _, selector := range []map[string]string{
			set.Spec.Selector.MatchLabels,
			service.Spec.Selector,
			found["PodDisruptionBudget docserviced-"+column].(*policy.PodDisruptionBudget).Spec.Selector.MatchLabels,
			found["NetworkPolicy docserviced-"+column].(*networking.NetworkPolicy).Spec.PodSelector.MatchLabels,
			set.Spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
		} {
			require.Subset(t, set.Spec.Template.Labels, selector)
			require.Equal(t, column, selector["docstore/column"], "it selects this column only")
		}
		require.Subset(t, service.Labels, found["ServiceMonitor docserviced"].(*monitoring.ServiceMonitor).Spec.Selector.MatchLabels)
		container := set.Spec.Template.Spec.Containers[0]
		require.Equal(t, "registry.example.org/docstore:0.1.0", container.Image)
		for _, probe := range []*core.Probe{container.LivenessProbe, container.ReadinessProbe} {
			require.Equal(t, "http", probe.HTTPGet.Port.StrVal)
		}
		require.Equal(t, column, settings(t, found, container)["DOCSERVICED_COLUMN"])
	}
	updater := found["StatefulSet docstore-updater"].(*apps.StatefulSet)
	require.Equal(t, int32(1), *updater.Spec.Replicas)
	require.Subset(t, updater.Spec.Template.Labels, found["NetworkPolicy docstore-updater"].(*networking.NetworkPolicy).Spec.PodSelector.MatchLabels)
	monitor := found["PodMonitor docstore-updater"].(*monitoring.PodMonitor).Spec
	require.Subset(t, updater.Spec.Template.Labels, monitor.Selector.MatchLabels)
	require.Equal(t, updater.Spec.Template.Spec.Containers[0].Ports[0].Name, *monitor.PodMetricsEndpoints[0].Port)
}

// settings returns the environment of a container. Fields of the pod have made-up values.
func settings(t *testing.T, found objects, c core.Container) map[string]string {
	t.Helper()
	environment := map[string]string{}
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef != nil {
			require.Contains(t, found, "ConfigMap "+from.ConfigMapRef.Name)
			for name, value := range found["ConfigMap "+from.ConfigMapRef.Name].(*core.ConfigMap).Data {
				environment[name] = value
			}
		}
	}
	for _, one := range c.Env {
		value := one.Value
		switch from := one.ValueFrom; {
		case from == nil:
		case from.ConfigMapKeyRef != nil:
			value = found["ConfigMap "+from.ConfigMapKeyRef.Name].(*core.ConfigMap).Data[from.ConfigMapKeyRef.Key]
			require.NotEmpty(t, value)
		default:
			value = "docserviced-a-0"
		}
		environment[one.Name] = expand(value, environment)
	}
	return environment
}

// expand replaces $(NAME).
func expand(text string, environment map[string]string) string {
	for name, value := range environment {
		text = strings.ReplaceAll(text, "$("+name+")", value)
	}
	return text
}

// TestCommands runs the commands of the pods with their settings: the daemon as far as it
// checks them, the updater until it misses its input.
func TestCommands(t *testing.T) {
	bin := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-C", root, "-o", bin+"/", "./cmd/docserviced", "./cmd/docstore-updater").CombinedOutput()
	require.NoError(t, err, string(out))
	found := build(t, example)
	command := func(name, set string, replace map[string]string, change ...string) (string, error) {
		container := found["StatefulSet "+set].(*apps.StatefulSet).Spec.Template.Spec.Containers[0]
		environment := settings(t, found, container)
		var args []string
		for _, arg := range container.Args {
			args = append(args, expand(arg, environment))
		}
		for i := range args {
			for from, to := range replace {
				args[i] = strings.ReplaceAll(args[i], from, to)
			}
		}
		c := exec.CommandContext(t.Context(), filepath.Join(bin, name), args...)
		for name, value := range environment {
			c.Env = append(c.Env, name+"="+value)
		}
		c.Env = append(c.Env, change...)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	t.Run("daemon", func(t *testing.T) {
		text, err := command("docserviced", "docserviced-a", map[string]string{"serve": "config"})
		require.NoError(t, err, text)
		require.Contains(t, text, "jobs=s3://company-docs/jobs")
		require.Regexp(t, `(?m)^advertise: docserviced-a-0\.docserviced-a\.docstore\.svc:7070 `, text)
		text, err = command("docserviced", "docserviced-a", map[string]string{"serve": "config"}, "DOCSERVICED_COLUMM=a")
		require.Error(t, err, "the settings are checked")
		require.Contains(t, text, "DOCSERVICED_COLUMM")
	})
	t.Run("updater", func(t *testing.T) {
		input := t.TempDir()
		text, err := command("docstore-updater", "docstore-updater", map[string]string{"/queue/": t.TempDir() + "/", "/input/": input + "/", ":7072": "127.0.0.1:0"})
		require.Error(t, err)
		require.Contains(t, text, input+"/documents.ndjson: no such file", "all other arguments are valid")
	})
}
