//! Manifests of custom kinds.

/// Widgets: two versions, the older one deprecated; defaults, rules, columns, a scale and a status.
pub(crate) const WIDGETS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.shop.example
spec:
  group: shop.example
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Color, type: string, jsonPath: .spec.color, priority: 1}
    selectableFields:
    - jsonPath: .spec.color
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            description: What is wanted.
            required: [size]
            properties:
              size: {type: integer, minimum: 1, description: How large it is.}
              color: {type: string, default: blue, enum: [blue, red]}
              replicas: {type: integer}
          status:
            type: object
            properties:
              replicas: {type: integer}
              phase: {type: string}
  - name: v1beta1
    served: true
    storage: false
    deprecated: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer}
"#;

/// Returns a widget of some size.
pub(crate) fn widget(name: &str, size: i64) -> String {
    format!(
        "apiVersion: shop.example/v1\nkind: Widget\nmetadata:\n  name: {name}\n  labels: {{size: \"{size}\"}}\n\
         spec: {{size: {size}}}\n"
    )
}

/// Returns the definition of a minimal kind.
pub(crate) fn plain(plural: &str, kind: &str, spec: &str) -> String {
    format!(
        r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: {plural}.shop.example
spec:
  group: shop.example
  scope: Namespaced
  names: {{plural: {plural}, kind: {kind}}}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {{type: object, properties: {spec}}}
"#
    )
}
