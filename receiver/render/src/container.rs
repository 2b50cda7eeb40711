//! The container of a thread: how it is identified in files, and what people call it.

use std::sync::Arc;

/// The digits of a container's ID that tell it apart from others, as its runtime prints them.
const SHORT_ID_DIGITS: usize = 12;

/// The container of a thread, or the unit of the service manager that its process belongs to. Empty texts are unknown.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct ProfileContainer {
    /// Its ID.
    pub id: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// The name of its image.
    pub image: Arc<str>,
    /// The name of its Kubernetes pod.
    pub pod: Arc<str>,
    /// The namespace of the pod.
    pub namespace: Arc<str>,
    /// The unit of systemd, outside of containers.
    pub unit: Arc<str>,
}

impl From<&str> for ProfileContainer {
    /// A container known only by its ID.
    fn from(id: &str) -> Self {
        Self { id: id.into(), ..Self::default() }
    }
}

impl ProfileContainer {
    /// The keys of [`Self::attributes`]: the semantic conventions', where they define any.
    pub const KEYS: [&str; 6] = [
        "container.id",
        "container.name",
        "container.image.name",
        "k8s.pod.name",
        "k8s.namespace.name",
        "sidewinder.systemd.unit",
    ];

    /// What is known, by [key](Self::KEYS). Empty texts are unknown.
    #[must_use]
    pub fn attributes(&self) -> [(&'static str, &str); 6] {
        let Self { id, name, image, pod, namespace, unit } = self;
        let texts: [&str; 6] = [id, name, image, pod, namespace, unit];
        std::array::from_fn(|index| (Self::KEYS[index], texts[index]))
    }

    /// The container with these attributes, by [key](Self::KEYS).
    pub fn from_attributes(text: impl Fn(&str) -> Option<Arc<str>>) -> Self {
        let [id, name, image, pod, namespace, unit] = Self::KEYS.map(|key| text(key).unwrap_or_default());
        Self { id, name, image, pod, namespace, unit }
    }

    /// The size of all texts.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        self.attributes().iter().map(|(_, text)| text.len()).sum()
    }

    /// What people call it: the pod or the name, the image, and the beginning of the ID; empty if nothing is known.
    #[must_use]
    pub fn label(&self) -> String {
        let Self { id, name, image, pod, namespace, unit } = self;
        let is_known = |text: &&Arc<str>| !text.is_empty();
        let place: Vec<&str> =
            [namespace, pod, name].into_iter().filter(is_known).map(|text| &**text).collect();
        if place.is_empty() && image.is_empty() {
            return if id.is_empty() { unit.to_string() } else { format!("container {id}") };
        }
        let mut label = place.join("/");
        let image = if image.is_empty() { String::new() } else { format!("({image})") };
        let short_id = id.get(..SHORT_ID_DIGITS).unwrap_or(id);
        for part in [&*image, short_id].into_iter().filter(|part| !part.is_empty()) {
            let space = if label.is_empty() { "" } else { " " };
            label.push_str(space);
            label.push_str(part);
        }
        label
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_called_by_what_is_known_of_it() {
        let id = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";
        let container = |known: &[(&str, &str)]| {
            ProfileContainer::from_attributes(|key| {
                known.iter().find(|(name, _)| *name == key).map(|(_, text)| (*text).into())
            })
        };
        for (known, label) in [
            (&[][..], ""),
            (&[("container.id", id)], &*format!("container {id}")),
            (&[("sidewinder.systemd.unit", "nginx.service")], "nginx.service"),
            (
                &[("container.id", id), ("container.name", "web"), ("container.image.name", "nginx:1.27")],
                "web (nginx:1.27) 2c26b46b68ff",
            ),
            (
                &[("k8s.pod.name", "api-7f9"), ("k8s.namespace.name", "shop"), ("container.name", "api")],
                "shop/api-7f9/api",
            ),
            (&[("container.image.name", "nginx")], "(nginx)"),
        ] {
            let container = container(known);
            assert_eq!(container.label(), label);
            let told = container.attributes().into_iter().filter(|(_, text)| !text.is_empty());
            assert_eq!(told.count(), known.len(), "{label}");
        }
    }
}
