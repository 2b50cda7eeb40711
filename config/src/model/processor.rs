//! Processors: components that modify profiles.

/// `resource`: modifies attributes of resources, one action after the other; at least one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResourceProcessor {
    /// The actions, in the order given.
    pub attributes: Vec<AttributeAction>,
}

/// One action on the attribute `key`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttributeAction {
    /// The attribute.
    pub key: String,
    /// The operation.
    pub change: AttributeChange,
}

/// An operation on an attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttributeChange {
    /// Adds the attribute if it is missing.
    Insert(AttributeSource),
    /// Replaces the value if the attribute exists.
    Update(AttributeSource),
    /// Sets the value, whether or not the attribute exists.
    Upsert(AttributeSource),
    /// Removes the attribute.
    Delete,
    /// Replaces the value by its SHA-256 in hexadecimal digits.
    Hash,
}

/// The source of a value. If it yields none, the operation is skipped.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AttributeSource {
    /// This value, or another attribute's.
    pub from: Option<AttributeOrigin>,
    /// The value if the other attribute is missing.
    pub default_value: Option<AttributeValue>,
}

/// A value, or the name of an attribute with the value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttributeOrigin {
    /// This value.
    Value(AttributeValue),
    /// The value of this attribute.
    Attribute(String),
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttributeValue {
    /// A string.
    Text(String),
    /// An integer.
    Integer(i64),
    /// A boolean.
    Bool(bool),
}
