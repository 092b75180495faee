# The image that `holon join --print` names: hack/image builds it.
#
# It contains the binary, the C library and the certificates of public authorities, and runs as the user that the manifest
# requires.
FROM rust:1.95-bookworm AS build
WORKDIR /holon
COPY . .
# The repository is not part of what is sent to the builder: hack/image says which commit this is.
ARG HOLON_COMMIT=
RUN cargo build --release --locked --package holon

FROM debian:bookworm-slim
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /holon/target/release/holon /usr/local/bin/holon
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/holon"]
