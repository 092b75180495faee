package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
)

// The number of renewals before the leader releases the lease.
const renewals = 5

func handleTyped(clients kubernetes.Interface, namespace string, traffic *traffic) error {
	if err := lead(clients, namespace); err != nil {
		return fmt.Errorf("leading: %w", err)
	}
	if err := deploy(clients, namespace); err != nil {
		return fmt.Errorf("deploying: %w", err)
	}
	wire := traffic.snapshot()
	printLine(map[string]summary{"summary": {Traffic: &wire}})
	return nil
}

// Becomes the leader, renews the lease a few times, and releases it.
func lead(clients kubernetes.Interface, namespace string) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	leases, name := clients.CoordinationV1().Leases(namespace), "the-one"
	var failed error
	config := leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Client: clients.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: "me"},
		},
		// Far more than a slow machine needs to renew in time; the test waits for the renewals.
		LeaseDuration: 60 * time.Second, RenewDeadline: 30 * time.Second, RetryPeriod: 100 * time.Millisecond,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				defer stop()
				failed = renewed(ctx, func() (*metav1.MicroTime, error) {
					lease, err := leases.Get(ctx, name, metav1.GetOptions{})
					if err != nil {
						return nil, err
					}
					return lease.Spec.RenewTime, nil
				})
			},
			OnStoppedLeading: func() {},
		},
	}
	elector, err := leaderelection.NewLeaderElector(config)
	if err != nil {
		return err
	}
	elector.Run(ctx)
	if failed != nil {
		return failed
	}
	lease, err := leases.Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != "" {
		return fmt.Errorf("the lease is still held by %q", holder)
	}
	printLine(map[string]any{"lease": map[string]any{"renewals": renewals, "version": lease.ResourceVersion}})
	return nil
}

// Waits until the time of the last renewal has increased a few times; it must never decrease.
func renewed(ctx context.Context, last func() (*metav1.MicroTime, error)) error {
	newest, err := last()
	if err != nil {
		return err
	}
	for count := 0; count < renewals; {
		time.Sleep(20 * time.Millisecond)
		now, err := last()
		switch {
		case err != nil:
			return err
		case now.Before(newest):
			return fmt.Errorf("a renewal went back from %v to %v", newest, now)
		case newest.Before(now):
			newest, count = now, count+1
		}
	}
	return ctx.Err()
}

// The lifecycle of a Deployment, as a controller with a typed client handles it.
func deploy(clients kubernetes.Interface, namespace string) error {
	ctx, deployments := context.Background(), clients.AppsV1().Deployments(namespace)
	made, err := deployments.Create(ctx, deployment(), metav1.CreateOptions{FieldManager: "typed"})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if made.UID == "" || made.Generation != 1 || *made.Spec.Replicas != 2 {
		return fmt.Errorf("create answered %+v", made)
	}
	if _, err := deployments.Create(ctx, deployment(), metav1.CreateOptions{}); !errors.IsAlreadyExists(err) {
		return fmt.Errorf("a second create: %v", err)
	}
	changed := made.DeepCopy()
	changed.Spec.Replicas = ptr.To[int32](3)
	updated, err := deployments.Update(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("update: %w", err)
	}
	if *updated.Spec.Replicas != 3 || updated.Generation != 2 || updated.ResourceVersion == made.ResourceVersion {
		return fmt.Errorf("update answered %+v", updated)
	}
	if _, err := deployments.Update(ctx, changed, metav1.UpdateOptions{}); !errors.IsConflict(err) {
		return fmt.Errorf("an update of what has changed: %v", err)
	}
	reported := updated.DeepCopy()
	reported.Status = appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 3, UnavailableReplicas: 3}
	if reported, err = deployments.UpdateStatus(ctx, reported, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update of the status: %w", err)
	}
	if reported.Status.Replicas != 3 || reported.Generation != 2 {
		return fmt.Errorf("update of the status answered %+v", reported)
	}
	patch := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:2"}]}}}}`)
	patched, err := deployments.Patch(ctx, made.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	container := patched.Spec.Template.Spec.Containers[0]
	if container.Image != "web:2" || container.Ports[0].ContainerPort != 80 {
		return fmt.Errorf("patch answered %+v", patched)
	}
	return undeploy(ctx, clients, patched)
}

func undeploy(ctx context.Context, clients kubernetes.Interface, held *appsv1.Deployment) error {
	deployments := clients.AppsV1().Deployments(held.Namespace)
	listed, err := deployments.List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil || len(listed.Items) != 1 || listed.Items[0].ResourceVersion != held.ResourceVersion {
		return fmt.Errorf("list: %v, %+v", err, listed)
	}
	other := types.UID("another")
	err = deployments.Delete(ctx, held.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
	if !errors.IsConflict(err) {
		return fmt.Errorf("a deletion of another object: %v", err)
	}
	background := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{
		PropagationPolicy: &background,
		Preconditions:     &metav1.Preconditions{UID: &held.UID, ResourceVersion: &held.ResourceVersion},
	}
	if err := deployments.Delete(ctx, held.Name, options); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if _, err := deployments.Get(ctx, held.Name, metav1.GetOptions{}); !errors.IsNotFound(err) {
		return fmt.Errorf("a get of what is deleted: %v", err)
	}
	printLine(map[string]any{"deployment": map[string]any{"uid": held.UID, "version": held.ResourceVersion}})
	return nil
}

func deployment() *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "web", Image: "web:1", Ports: []corev1.ContainerPort{{ContainerPort: 80}},
				}}},
			},
		},
	}
}
